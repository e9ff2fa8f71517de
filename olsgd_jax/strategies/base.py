"""Strategy: how workers communicate, in five parts.

Over a round, worker i goes from its start xᵢ to its end yᵢ in τ local steps.

    init           makes the state that outlives a round
    mean_of        when the message is known: at a round's start or end; or "gradients"
    message        what a worker sends; by default its model
    reduce_grads   gives the gradient that a local step uses, from the workers' mean if
                   mean_of is "gradients", else from the worker's own; the same one by
                   default
    mix            ends the round: turns start, end and mean into the next start

A mean of the start shares no data with the local steps, so the two can overlap. A mean
of the end has to wait for them. A `Reduction` says how the mean is computed.

If some workers miss a round, the mean is over the workers that are present in it. An
absent worker keeps its own state. State that the equations make equal on all workers is
updated on absent workers too (see `absence`).
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from olsgd_jax.types import Grads, MeanOf, Message, Params, StrategyState


def keep_grads(grads: Grads, state: StrategyState):
    """Lets a local step use its gradient as it is."""
    return grads, state


def keep_end(start: Params, end: Params, mean: Params, state: StrategyState):
    """Ends a round without a mix: the end is the next start."""
    del start, mean
    return end, state


def send_model(params: Params, state: StrategyState) -> Message:
    """Sends the model."""
    del state
    return params


def consensus(mean: Params, state: StrategyState) -> Params:
    """Gives the mean of the models as the virtual model."""
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
    reduce_grads: Callable[[Grads, StrategyState], tuple[Grads, StrategyState]] = (
        keep_grads
    )
    # The model and the state at the start or end, as `mean_of` says -> what is sent.
    message: Callable[[Params, StrategyState], Message] = send_model
    # Between rounds: the mean of the models -> the virtual model y, which only
    # gradients move, not mixing.
    virtual: Callable[[Params, StrategyState], Params] = consensus
    # m, if the equations contain it; None if they hold for any number of workers.
    num_workers: int | None = None
    # The mix of a round with p of m workers present, which also takes p / m as
    # `fraction`; None if the mean over those present is all that the mix needs.
    mix_present: Callable[..., tuple[Params, StrategyState]] | None = None
    # Fields of the state that belong to one worker; all other fields are shared.
    own: tuple[str, ...] = ()
    # "params", "opt_state" or both, if the equations make them equal on all workers.
    common: tuple[str, ...] = ()


class NamedStrategy(NamedTuple):
    """An entry of `STRATEGIES`.

    >>> from olsgd_jax import STRATEGIES
    >>> STRATEGIES["slowmo"].label, STRATEGIES["slowmo"].args
    ('SlowMo', {'momentum': 0.7})
    """

    build: Callable[..., Strategy]
    label: str  # name in tables, figures and prose
    args: Mapping[str, float]  # default arguments, from its own paper


def check_strategy(strategy: object) -> None:
    """Raises unless `strategy` is a `Strategy` object.

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
    """Raises an error that starts with `demand` unless the mean is of the start."""
    if strategy.mean_of != "start":
        raise ValueError(
            f"{demand} under {strategy.name}, which does not average the models of the "
            "round's start; use cocod_sgd or overlap_local_sgd"
        )


def check_num_workers(strategy: Strategy, num_workers: int) -> None:
    """Raises if the strategy was built for another number of workers."""
    if strategy.num_workers not in (None, num_workers):
        raise ValueError(
            f"{strategy.name} was built with num_workers={strategy.num_workers}, "
            f"got {num_workers} workers; build it with num_workers={num_workers}"
        )
