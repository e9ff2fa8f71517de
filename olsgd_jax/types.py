"""Names for the types of the library's arguments, each with one line of explanation."""

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
    "MeanOf",
    "Message",
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
"""A tree of a model's untrained variables, such as batch statistics; may be empty."""

OptState: TypeAlias = Any
"""The state of an optax optimizer between steps."""

StrategyState: TypeAlias = Any
"""The state of a strategy between steps and rounds."""

Batch: TypeAlias = Any
"""A tree of arrays that the loss takes."""

ArrayTree: TypeAlias = Any
"""A tree of arrays of any kind."""

Shards: TypeAlias = list[Int[np.ndarray, " _"]]
"""The indices of every worker's examples; workers may have different numbers."""

Loss: TypeAlias = Callable[
    [Params, ModelState, Batch, Key[Array, ""]],
    tuple[Float[Array, ""], ModelState],
]
"""params, model_state, batch, key -> loss, new model_state; pure, for one worker."""

Present: TypeAlias = Bool[Array, "*workers"] | Bool[np.ndarray, "*workers"]
"""Whether a worker takes part in a round: one bool per worker, or one worker's."""

Message: TypeAlias = Any
"""A tree of arrays that a worker sends."""

ReductionState: TypeAlias = Any
"""A reduction's state: a tuple, of trees of the message's shape if messages are cut."""

MeanOf: TypeAlias = Literal["start", "end", "gradients"]
"""When messages are known: at a round's start or end; or gradients, at every step."""

Device: TypeAlias = Any
"""One of `jax.devices()`."""

Mapping: TypeAlias = Literal["vmap", "pmap", "shard_map"]
"""What a worker is: a lane on one device, a pmap device, or a slot of a mesh."""

Driver: TypeAlias = Literal["fused", "host"]
"""How a round runs: as one program, or as programs on two host threads."""

ModelStatePolicy: TypeAlias = Literal["local", "averaged"]
"""Whether `ModelState` stays with its worker or is averaged with the models."""

EvaluatedModel: TypeAlias = Literal["worker", "consensus", "anchor", "virtual"]
"""Which model is evaluated; see `consensus.model_of`."""

Dtype: TypeAlias = Literal["float32", "bfloat16"]
"""The dtype that a network computes in."""

Option: TypeAlias = Any
"""The value of a named option, of any type."""
