"""Rollback: a run that diverged goes on from its last checkpoint, at a lower rate.

    xᵢ ← z of the checkpoint, or mean x where the strategy keeps no anchor
    γ  ← scale γ

Momentum, velocities and what else was learned of gradients start anew. Counts of steps
stay, so that a schedule goes on where it was, and so do rounds and random keys: batches
are those that the rounds would have had. Where nothing was saved, the run begins again.
A checkpoint of another number of workers is resized first (see `resize`).
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import TypeAlias

import jax

from olsgd_jax._checks import check_number
from olsgd_jax.round.consensus import model_of
from olsgd_jax.round.local_steps import WorkerState
from olsgd_jax.training.checkpoints import Checkpoints
from olsgd_jax.training.components import (
    Components,
    build_optimizer,
    build_schedule,
    build_strategy,
)
from olsgd_jax.training.config import Config
from olsgd_jax.training.records.types import (
    Entry,
    Record,
    Resumed,
    Rollback,
    kept_entries,
)
from olsgd_jax.training.recovery.divergence import DivergedError
from olsgd_jax.training.recovery.restart import start_workers
from olsgd_jax.training.recovery.resume import Progress, restore, steps_ahead


@dataclasses.dataclass(frozen=True)
class Rollbacks:
    """How often a run may go back, and how much slower it goes on.

    A checkpoint is finite, but may be of a model that is lost already; then no rate
    helps, and all times are used up.

    >>> from olsgd_jax.training import Rollbacks
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


Rounds: TypeAlias = Callable[
    [Config, Components, WorkerState, Progress], Iterator[Record]
]
"""config, components, state, progress -> the records of the rounds that are left."""


def run_with_rollbacks(
    run: Rounds,
    config: Config,
    components: Components,
    state: WorkerState,
    progress: Progress,
    checkpoints: Checkpoints | None,
    rollbacks: Rollbacks,
) -> Iterator[Entry]:
    """Runs to the end, from wherever the run is, as often as it takes and may.

    What it yields is what happened, undone or not, from the beginning of the run on.
    """
    history = list(progress.records)
    yield from history
    while True:
        happened = [row for row in history if isinstance(row, Rollback)]
        rate = happened[-1].learning_rate if happened else config.learning_rate
        now = dataclasses.replace(config, learning_rate=rate)
        ahead = steps_ahead(config, progress)
        own = _at_rate_of(now, components, ahead) if happened or ahead else components
        try:
            for record in run(now, own, state, progress):
                history.append(record)
                yield record
            return
        except DivergedError as error:
            if len(happened) >= rollbacks.times:
                raise
            number = error.round
        state, progress = restore(checkpoints, config, components)
        state = restarted(state, config, components)
        back = Rollback(number, progress.round, rollbacks.scale * rate)
        new = [back, *_changed_again(progress, [*history, back])]
        history += new
        progress = progress._replace(records=tuple(history))
        yield from new


def _changed_again(progress: Progress, history: list[Entry]) -> list[Resumed]:
    """Gives the change of layout that goes with a checkpoint from before the change."""
    kept, last = kept_entries(history), progress.records[-1:]
    return [x for x in last if isinstance(x, Resumed) and x not in kept]


def restarted(
    state: WorkerState, config: Config, components: Components
) -> WorkerState:
    """Puts all workers at the anchor or the consensus, with nothing learned beside."""
    has_anchor = hasattr(state.strategy_state, "anchor")
    which = "anchor" if has_anchor else "consensus"
    model = model_of(state, components.strategy, which, components.mesh)
    model = jax.device_get(model)  # to be put on all devices
    return start_workers(model, state, config, components)


def _at_rate_of(config: Config, components: Components, ahead: float) -> Components:
    """Gives components the learning rate of a config, so many steps ahead."""
    schedule = build_schedule(config, sum(map(len, components.shards)), ahead)
    return components._replace(
        schedule=schedule,
        optimizer=build_optimizer(config, schedule),
        strategy=build_strategy(config, schedule),
    )
