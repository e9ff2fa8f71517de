"""Delayed DiLoCo: the outer optimizer gets the mean of the round before.

    z  ← z + outer(meanⱼ dⱼ)       dⱼ: what the round before took off worker j's model
    dᵢ ← xᵢ − yᵢ                   what this round took off
    xᵢ ← z                         every round starts from the same model

The dⱼ are known when the round starts, so their mean crosses the network while the
local steps run. The first round sends zeros, so the second starts where it did. With
SGD of rate 1 as outer optimizer this is Local SGD that applies every round's progress a
round late.

DiLoCo's outer optimizer diverges here wherever a round takes a direction to less than
0.64 of what it was (see `theory.stability`). So the default has no momentum.

If only the workers in P are present in a round,

    z  ← z + outer(mean of dⱼ over P),  xᵢ ← z      on every worker
    dᵢ ← xᵢ − yᵢ                                    for i in P; else dᵢ stays

and dᵢ is sent when worker i returns. If P is empty, nothing changes.

Reference: S. Kale, A. Douillard, Y. Donchev, "Eager Updates for Overlapped
Communication and Computation in DiLoCo", 2025, arXiv:2502.12996, which compares its
eager updates with this form.
"""

from typing import NamedTuple

import optax

from olsgd_jax.strategies.base import NamedStrategy, Strategy
from olsgd_jax.strategies.outer import (
    WITHOUT_MOMENTUM,
    by_numbers,
    check_outer,
    nesterov,
)
from olsgd_jax.types import OptState, Params


class DelayedState(NamedTuple):
    """The state between rounds."""

    progress: Params  # dᵢ, a worker's own
    outer: OptState  # the same on every worker


def delayed_diloco(
    outer_optimizer: optax.GradientTransformation | None = None,
) -> Strategy:
    """Builds delayed DiLoCo.

    Args:
      outer_optimizer: any optax optimizer; the default is SGD with a rate of 0.7,
        without the Nesterov momentum of 0.9 that DiLoCo has.

    >>> import jax.numpy as jnp, optax
    >>> from olsgd_jax import delayed_diloco
    >>> strategy = delayed_diloco(optax.sgd(0.5))
    >>> start, end, mean = jnp.array(1.0), jnp.array(0.0), jnp.array(0.5)
    >>> params, state = strategy.mix(start, end, mean, strategy.init(start))
    >>> params.item(), state.progress.item()
    (0.75, 1.0)
    """
    outer = nesterov(**WITHOUT_MOMENTUM) if outer_optimizer is None else outer_optimizer
    check_outer(outer)

    def init(params: Params) -> DelayedState:
        return DelayedState(optax.tree.zeros_like(params), outer.init(params))

    def message(params: Params, state: DelayedState) -> Params:
        del params
        return state.progress

    def mix(start: Params, end: Params, mean: Params, state: DelayedState):
        updates, outer_state = outer.update(mean, state.outer, start)
        progress = optax.tree.sub(start, end)
        return optax.apply_updates(start, updates), DelayedState(progress, outer_state)

    return Strategy(
        name="delayed_diloco",
        mean_of="start",
        init=init,
        message=message,
        mix=mix,
        own=("progress",),
        common=("params",),
    )


DELAYED_DILOCO = NamedStrategy(
    by_numbers(delayed_diloco, WITHOUT_MOMENTUM),
    "Delayed DiLoCo",
    args=WITHOUT_MOMENTUM,
)
