"""Strategy: how workers communicate, in four parts.

Over a round, worker i goes from its start xᵢ to its end yᵢ in τ local steps.

    init           what outlives a round
    mean_of        what is averaged: models as a round starts or ends, or gradients
    reduce_grads   at every local step: a worker's gradient becomes the one it uses;
                   by default their mean under "gradients", else the worker's own
    mix            the round's last line: start, end and mean become the next start

A mean of the start shares no data with the local steps, so the two can overlap. A
mean of the end has to wait for them. How the mean is made is a `Reduction`'s matter.

A round that some workers miss averages the starts, ends or gradients of those present
in that same round. What a worker has for itself it keeps while it is absent; what is
the same on all workers by the equations moves on absent ones too (see `absence`).
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from olsgd_jax.types import Grads, Mean, MeanOf, Params, StrategyState


def keep_grads(grads: Grads, state: StrategyState, mean: Mean):
    """Leaves every worker its own gradient."""
    del mean
    return grads, state


def keep_end(start: Params, end: Params, mean: Params, state: StrategyState):
    """Ends a round as the local steps left it."""
    del start, mean
    return end, state


def consensus(mean: Params, state: StrategyState) -> Params:
    """Takes the mean of the models for the virtual model."""
    del state
    return mean


class Strategy(NamedTuple):
    """How workers communicate. Built by functions such as `overlap_local_sgd`.

    >>> import jax.numpy as jnp
    >>> from olsgd_jax import local_sgd
    >>> strategy = local_sgd()
    >>> strategy.mean_of
    'end'
    >>> start, end, mean = jnp.zeros(2), jnp.ones(2), jnp.full(2, 0.5)
    >>> strategy.mix(start, end, mean, strategy.init(start))
    (Array([0.5, 0.5], dtype=float32...), ())
    """

    name: str
    mean_of: MeanOf
    init: Callable[[Params], StrategyState]
    mix: Callable[
        [Params, Params, Params, StrategyState], tuple[Params, StrategyState]
    ] = keep_end
    reduce_grads: Callable[
        [Grads, StrategyState, Mean], tuple[Grads, StrategyState]
    ] = keep_grads
    # Between rounds: the mean of the models -> the virtual model y, which mixing
    # leaves where it is, so that gradients alone move it.
    virtual: Callable[[Params, StrategyState], Params] = consensus
    # m, where the equations contain it; None where any number of workers will do.
    num_workers: int | None = None
    # The mix of a round with p of m workers present, given p / m as `fraction` too;
    # None where the mean of those present is all that the equations need.
    mix_present: Callable[..., tuple[Params, StrategyState]] | None = None
    # Fields of the state that every worker has for itself; all others are shared.
    own: tuple[str, ...] = ()
    # Of params and opt_state, what the equations make the same on all workers.
    common: tuple[str, ...] = ()


class NamedStrategy(NamedTuple):
    """A strategy as it is known by its name, in `STRATEGIES`.

    >>> from olsgd_jax import STRATEGIES
    >>> STRATEGIES["powersgd"].label, STRATEGIES["powersgd"].args
    ('PowerSGD', {'rank': 2})
    """

    build: Callable[..., Strategy]
    label: str  # what it is called in tables, figures and prose
    args: Mapping[str, float]  # default arguments, from its own paper


def check_strategy(strategy: object) -> None:
    """Raises unless `strategy` is one that was built.

    >>> check_strategy("local_sgd")
    Traceback (most recent call last):
    TypeError: strategy must be a built one, got 'local_sgd'; pass local_sgd() or ...
    """
    if isinstance(strategy, Strategy):
        return
    name = getattr(strategy, "__name__", None)
    got, fix = (
        f"{strategy!r:.60}",
        "pass local_sgd() or overlap_local_sgd(pullback=0.6)",
    )
    if name is not None:
        got, fix = f"the function {name}", f"call it, as in {name}(...)"
    raise TypeError(f"strategy must be a built one, got {got}; {fix}")


def check_delayed(demand: str, strategy: Strategy) -> None:
    """Raises `demand` unless the mean is of the models that a round begins with."""
    if strategy.mean_of != "start":
        raise ValueError(
            f"{demand} under {strategy.name}, which averages no models that are there "
            "before the local steps; cocod_sgd and overlap_local_sgd do"
        )


def check_num_workers(strategy: Strategy, num_workers: int) -> None:
    """Raises if the strategy was built for another number of workers."""
    if strategy.num_workers not in (None, num_workers):
        raise ValueError(
            f"{strategy.name} was built with num_workers={strategy.num_workers}, "
            f"got {num_workers} workers; build it with num_workers={num_workers}"
        )
