"""Rollback: a run that diverged goes on from its last checkpoint, at a lower rate.

    xᵢ ← z of the checkpoint, or mean x where the strategy keeps no anchor
    γ  ← scale γ

Momentum, velocities and what else was learned of gradients start anew. Counts of steps
stay, so that a schedule goes on where it was, and so do rounds and random keys: batches
are those that the rounds would have had. Where nothing was saved, the run begins again.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import TypeAlias

import jax
import jax.numpy as jnp

from olsgd_jax.build import Parts, build_optimizer, build_schedule, build_strategy
from olsgd_jax.checkpoints import Checkpoints
from olsgd_jax.checks import check_number
from olsgd_jax.config import Config
from olsgd_jax.consensus import model_of
from olsgd_jax.divergence import DivergedError
from olsgd_jax.local import WorkerState
from olsgd_jax.record import Record, Rollback
from olsgd_jax.resume import Progress, restore
from olsgd_jax.state import init_state


@dataclasses.dataclass(frozen=True)
class Rollbacks:
    """How often a run may go back, and how much slower it goes on.

    A checkpoint is finite, but may be of a model that is lost already; then no rate
    helps, and all times are used up.

    >>> from olsgd_jax import Rollbacks
    >>> Rollbacks(scale=2.0)
    Traceback (most recent call last):
    ValueError: scale must be in (0, 1), got 2.0
    """

    scale: float = 0.5  # of the learning rate, every time
    times: int = 3  # 0: never

    def __post_init__(self) -> None:
        """Raises unless both can be what they are."""
        check_number("scale", self.scale, 0, 1, "()")
        check_number("times", self.times, 0, float("inf"), "[)")


Rounds: TypeAlias = Callable[[Config, Parts, WorkerState, Progress], Iterator[Record]]
"""config, parts, state, progress -> the records of the rounds that are left."""


def run_with_rollbacks(
    run: Rounds,
    config: Config,
    parts: Parts,
    state: WorkerState,
    progress: Progress,
    checkpoints: Checkpoints | None,
    rollbacks: Rollbacks,
) -> Iterator[Record | Rollback]:
    """Runs to the end, from wherever the run is, as often as it takes and may.

    What it yields is what happened, undone or not, from the beginning of the run on.
    """
    history = list(progress.records)
    yield from history
    while True:
        happened = [row for row in history if isinstance(row, Rollback)]
        rate = happened[-1].learning_rate if happened else config.learning_rate
        now = dataclasses.replace(config, learning_rate=rate)
        own = _at_rate_of(now, parts) if happened else parts
        try:
            for record in run(now, own, state, progress):
                history.append(record)
                yield record
            return
        except DivergedError as error:
            if len(happened) >= rollbacks.times:
                raise
            number = error.round
        state, progress = parts.init(), Progress()
        if checkpoints is not None:
            state, progress = restore(checkpoints, config, state)
        state = restarted(state, config, parts)
        history.append(Rollback(number, progress.round, rollbacks.scale * rate))
        progress = progress._replace(records=tuple(history))
        yield history[-1]


def restarted(state: WorkerState, config: Config, parts: Parts) -> WorkerState:
    """Puts all workers at the anchor or the consensus, with nothing learned beside."""
    has_anchor = hasattr(state.strategy_state, "anchor")
    which = "anchor" if has_anchor else "consensus"
    model = model_of(state, parts.strategy, which, parts.mesh)
    params, model_state = jax.device_get(model)  # to be put on all devices
    fresh = init_state(
        params,
        parts.optimizer,
        parts.strategy,
        mesh=parts.mesh,
        num_workers=config.num_workers,
        model_state=model_state,
        seed=config.seed,
    )

    def keep_counts(new: jax.Array, old: jax.Array) -> jax.Array:
        return new if jnp.issubdtype(new.dtype, jnp.inexact) else old

    return jax.tree.map(keep_counts, fresh, state)


def _at_rate_of(config: Config, parts: Parts) -> Parts:
    """Gives the parts the learning rate of a config."""
    schedule = build_schedule(config, sum(map(len, parts.shards)))
    return parts._replace(
        schedule=schedule,
        optimizer=build_optimizer(config, schedule),
        strategy=build_strategy(config, schedule),
    )
