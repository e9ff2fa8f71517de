"""Eager DiLoCo: a worker's own progress at once, that of all others a round late.

    gᵢ ← meanⱼ dⱼ + (xᵢ − yᵢ − dᵢ) / m     dⱼ: what the round before took off worker j
    dᵢ ← xᵢ − yᵢ                           what this round took off
    xᵢ ← xᵢ + outerᵢ(gᵢ)

The dⱼ are known when the round starts, so their mean crosses the network while the
local steps run. In it, a worker replaces its own part by its newer one. So workers
differ: every one keeps its own model and outer optimizer.

In the first round dⱼ is 0, and a worker applies an m-th of its own progress.

With an outer optimizer that is linear, the mean of the workers' models is that of
delayed DiLoCo with gradients in part newer. What a worker's model differs from it by
does not heal: nothing pulls workers together.

If only the workers in P are present in a round,

    gᵢ ← mean of dⱼ over P + (xᵢ − yᵢ − dᵢ) / m      for i in P

and an absent worker keeps its model, dᵢ and outer optimizer.

Reference: S. Kale, A. Douillard, Y. Donchev, "Eager Updates for Overlapped
Communication and Computation in DiLoCo", 2025, arXiv:2502.12996. Its outer optimizer
is DiLoCo's, which diverges here where a round takes a direction to less than 0.59 of
what it was (16 workers; see `theory.stability`). So the default has no momentum.
"""

from typing import NamedTuple

import jax
import optax

from olsgd_jax._checks import check_count
from olsgd_jax.strategies.base import NamedStrategy, Strategy
from olsgd_jax.strategies.outer import (
    WITHOUT_MOMENTUM,
    by_numbers,
    check_outer,
    nesterov,
)
from olsgd_jax.types import OptState, Params


class EagerState(NamedTuple):
    """The state between rounds; a worker's own."""

    progress: Params  # dᵢ
    outer: OptState


def eager_diloco(
    num_workers: int, outer_optimizer: optax.GradientTransformation | None = None
) -> Strategy:
    """Builds eager DiLoCo.

    Args:
      num_workers: number of workers, m.
      outer_optimizer: any optax optimizer; the default is SGD with a rate of 0.7,
        without the paper's Nesterov momentum of 0.9.

    >>> import jax.numpy as jnp, optax
    >>> from olsgd_jax import eager_diloco
    >>> strategy = eager_diloco(2, optax.sgd(0.5))
    >>> start, end, mean = jnp.array(1.0), jnp.array(0.0), jnp.array(0.25)
    >>> params, state = strategy.mix(start, end, mean, strategy.init(start))
    >>> params.item(), state.progress.item()
    (0.625, 1.0)
    """
    check_count("num_workers", num_workers)
    outer = nesterov(**WITHOUT_MOMENTUM) if outer_optimizer is None else outer_optimizer
    check_outer(outer)

    def init(params: Params) -> EagerState:
        return EagerState(optax.tree.zeros_like(params), outer.init(params))

    def message(params: Params, state: EagerState) -> Params:
        del params
        return state.progress

    def mix(start: Params, end: Params, mean: Params, state: EagerState):
        progress = optax.tree.sub(start, end)
        grads = jax.tree.map(
            lambda mean, new, old: mean + (new - old) / num_workers,
            mean,
            progress,
            state.progress,
        )
        updates, outer_state = outer.update(grads, state.outer, start)
        return optax.apply_updates(start, updates), EagerState(progress, outer_state)

    return Strategy(
        name="eager_diloco",
        mean_of="start",
        init=init,
        message=message,
        mix=mix,
        num_workers=num_workers,
        own=("progress", "outer"),
    )


EAGER_DILOCO = NamedStrategy(
    by_numbers(eager_diloco, WITHOUT_MOMENTUM), "Eager DiLoCo", args=WITHOUT_MOMENTUM
)
