"""The gradient that a local step uses: a worker's own, or the mean of all workers'."""

from collections.abc import Hashable

import jax

from olsgd_jax.reductions.base import ALL, Reduction
from olsgd_jax.round.participation import arrived, outgoing
from olsgd_jax.strategies.base import Strategy
from olsgd_jax.types import (
    ArrayTree,
    Grads,
    Present,
    ReductionState,
    StrategyState,
)
from olsgd_jax.workers.axis import WORKERS


def check_shared(
    strategy: Strategy, reduction: Reduction, strategy_state: StrategyState
) -> None:
    """Raises if numbers that are not sent would break what a strategy's workers share.

    Args:
      strategy: how workers communicate.
      reduction: how messages become a mean.
      strategy_state: a state of the strategy, or its shapes.

    >>> import jax.numpy as jnp
    >>> from olsgd_jax import easgd, random_mask
    >>> strategy = easgd(moving_rate=0.1, num_workers=2)
    >>> check_shared(strategy, random_mask(), strategy.init(jnp.zeros(3)))
    Traceback (most recent call last):
    ValueError: reduction must send whole messages under easgd, got random_mask; ...
    """
    shares = strategy.common or jax.tree.leaves(strategy_state)
    if shares and reduction.part is not ALL:
        raise ValueError(
            f"reduction must send whole messages under {strategy.name}, got "
            f"{reduction.name}; use local_sgd, or cocod_sgd without momentum, whose "
            "workers share only the mean, or another reduction, such as top_k()"
        )


def reduce_gradients(
    strategy: Strategy,
    reduction: Reduction,
    grads: Grads,
    states: tuple[StrategyState, ReductionState],
    present: Present | None = None,
    axis_name: Hashable = WORKERS,
) -> tuple[Grads, tuple[StrategyState, ReductionState]]:
    """Gives the gradients that a local step passes to its optimizer.

    Args:
      strategy: says whether gradients are averaged.
      reduction: how they are averaged.
      grads: the worker's own gradients.
      states: the strategy's state, and the reduction's state for gradients.
      present: whether this worker is present; None if all workers are.
      axis_name: name of the worker axis.

    Returns:
      The gradients to apply, and the new states.
    """
    strategy_state, state = states
    if strategy.mean_of == "gradients":
        sent = reduction.reduce(*outgoing(reduction, grads, state, present), axis_name)
        grads, state, _ = arrived(reduction, sent, state, present)
    grads, strategy_state = strategy.reduce_grads(grads, strategy_state)
    return grads, (strategy_state, state)


def mean_once(
    reduction: Reduction,
    tree: ArrayTree,
    present: Present | None = None,
    axis_name: Hashable = WORKERS,
) -> ArrayTree:
    """Averages a tree without keeping the reduction's state for it.

    >>> import jax, jax.numpy as jnp
    >>> from olsgd_jax import exact
    >>> def worker(x, present):
    ...     return mean_once(exact(), x, present)
    >>> here = jnp.array([True, False, True])
    >>> jax.vmap(worker, axis_name="workers")(jnp.array([1.0, jnp.nan, 2.0]), here)
    Array([1.5, 1.5, 1.5], dtype=float32)
    """
    state = reduction.init(tree)
    sent = reduction.reduce(*outgoing(reduction, tree, state, present), axis_name)
    return arrived(reduction, sent, state, present)[0]
