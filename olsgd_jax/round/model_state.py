"""How a mix treats batch statistics and other model state.

    local       sᵢ ← sᵢ                       every worker keeps its own
    averaged    sᵢ ← meanⱼ sⱼ                 if the mean is of the round's end
                sᵢ ← (sᵢ + meanⱼ s'ⱼ) / 2     if it is of the round's start, s'

The second line of `averaged` moves only half-way, because a mean of the start contains
nothing of this round. Taking it whole would freeze the statistics. Adding the round's
progress to it could make a variance negative. Integers (counters) stay local.

So could a reduction that rounds: the error of a number depends on the largest number of
its block, which may be of another array.
"""

from typing import get_args

import jax
import jax.numpy as jnp

from olsgd_jax._checks import check_choice
from olsgd_jax.reductions.base import Reduction
from olsgd_jax.strategies.anchor import pull
from olsgd_jax.types import MeanOf, ModelState, ModelStatePolicy


def check_policy(policy: str, reduction: Reduction) -> None:
    """Raises unless model state may be treated in this way.

    >>> from olsgd_jax import int8
    >>> check_policy("averaged", int8())
    Traceback (most recent call last):
    ValueError: model_state_policy must be 'local' under int8, whose rounding could ...
    """
    check_choice("model_state_policy", policy, get_args(ModelStatePolicy))
    if policy == "averaged" and reduction.is_compressed:
        raise ValueError(
            f"model_state_policy must be 'local' under {reduction.name}, whose "
            "rounding could make an averaged variance negative; model_of gives the "
            "exact mean of all workers' model state"
        )


def averaged_part(model_state: ModelState, policy: ModelStatePolicy) -> ModelState:
    """Selects the leaves of a model state that are averaged; the others become None.

    >>> averaged_part({"mean": jnp.ones(1), "count": jnp.array(3)}, "averaged")
    {'count': None, 'mean': Array([1.], dtype=float32)}
    >>> averaged_part({"mean": jnp.ones(1), "count": jnp.array(3)}, "local")
    {'count': None, 'mean': None}
    """

    def averaged(x: jax.Array) -> jax.Array | None:
        is_averaged = policy == "averaged" and jnp.issubdtype(x.dtype, jnp.floating)
        return x if is_averaged else None

    return jax.tree.map(averaged, model_state)


def mix_model_state(end: ModelState, mean: ModelState, mean_of: MeanOf) -> ModelState:
    """Mixes a worker's model state with the mean of its averaged part.

    >>> mix_model_state({"mean": 1.0, "count": 3}, {"mean": 2.0, "count": None}, "end")
    {'count': 3, 'mean': 2.0}
    >>> mix_model_state({"mean": 1.0}, {"mean": 2.0}, "start")
    {'mean': 1.5}
    """

    def mix(own: jax.Array, mean: jax.Array | None) -> jax.Array:
        if mean is None:
            return own
        return pull(own, mean, 0.5) if mean_of == "start" else mean

    return jax.tree.map(mix, end, mean, is_leaf=lambda x: x is None)
