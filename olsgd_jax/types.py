"""Names for the trees that flow through the library, each with a line of meaning."""

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

__all__ = [
    "ArrayTree",
    "Batch",
    "Device",
    "Driver",
    "Dtype",
    "EvaluatedModel",
    "Grads",
    "Loss",
    "Mapping",
    "Mean",
    "MeanOf",
    "ModelState",
    "ModelStatePolicy",
    "OptState",
    "Option",
    "Params",
    "Present",
    "Shards",
    "StrategyState",
]

Params: TypeAlias = Any
"""A tree of floating-point arrays: one model's trained variables."""

Grads: TypeAlias = Any
"""A tree like `Params`: the gradient of a loss, or an update to be added."""

ModelState: TypeAlias = Any
"""A tree of the variables that a model keeps but does not train; may be empty."""

OptState: TypeAlias = Any
"""What an optax optimizer keeps between steps."""

StrategyState: TypeAlias = Any
"""What a strategy keeps between steps and rounds."""

Batch: TypeAlias = Any
"""A tree of arrays that a loss understands."""

ArrayTree: TypeAlias = Any
"""A tree of arrays of any kind."""

Shards: TypeAlias = list[Int[np.ndarray, " _"]]
"""The indices of every worker's examples; some may have more than others."""

Loss: TypeAlias = Callable[
    [Params, ModelState, Batch, Key[Array, ""]],
    tuple[Float[Array, ""], ModelState],
]
"""params, model_state, batch, key -> loss, new model_state; pure, for one worker."""

Present: TypeAlias = Bool[Array, "*workers"] | Bool[np.ndarray, "*workers"]
"""Whether a worker takes part in a round; of all workers, or of one."""

Message: TypeAlias = Any
"""A tree of arrays that a worker sends."""

ReductionState: TypeAlias = tuple[Any, ...]
"""What a reduction keeps of a message: trees like it, most often none."""

Mean: TypeAlias = Callable[[ArrayTree], ArrayTree]
"""Averages a tree over all workers."""

MeanOf: TypeAlias = Literal["start", "end", "gradients"]
"""What is averaged: models as a round begins or ends, or gradients at every step."""

Device: TypeAlias = Any
"""One of `jax.devices()`."""

Mapping: TypeAlias = Literal["vmap", "pmap", "shard_map"]
"""What a worker is: a lane on one device, a pmap device, or a slot of a mesh."""

Driver: TypeAlias = Literal["fused", "host"]
"""What runs a round: one program, or programs that a thread overlaps."""

ModelStatePolicy: TypeAlias = Literal["local", "averaged"]
"""Whether `ModelState` stays with its worker or is averaged with the models."""

EvaluatedModel: TypeAlias = Literal["worker", "consensus", "anchor", "virtual"]
"""Which model is evaluated; see `consensus.model_of`."""

Dtype: TypeAlias = Literal["float32", "bfloat16"]
"""What a network computes in."""

Option: TypeAlias = Any
"""The value of an option that is known by its name, of whatever kind it has."""
