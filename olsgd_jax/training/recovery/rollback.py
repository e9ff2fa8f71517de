"""Rollback: a run that diverged goes on from its last checkpoint, at a lower rate.

    xᵢ ← z of the checkpoint, or mean x where the strategy keeps no anchor
    γ  ← scale γ

Momentum, velocities and what else was learned of gradients start anew. Counts of steps
stay, so that a schedule goes on where it was, and so do rounds and random keys: batches
are those that the rounds would have had. Where nothing was saved, the run begins again.
A checkpoint of another number of workers is resized first (see `resize`).
"""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Annotated

import jax

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
from olsgd_jax.training.options import between, settle_options, whole
from olsgd_jax.training.records.types import Entry, Resumed, Rollback, kept_entries
from olsgd_jax.training.recovery.elastic import start_workers
from olsgd_jax.training.recovery.resume import Progress, restore, steps_ahead


@dataclasses.dataclass(frozen=True)
class RollbackPolicy:
    """How often a run may go back, and how much slower it goes on.

    A checkpoint is finite, but may be of a model that is lost already; then no rate
    helps, and all times are used up.

    >>> from olsgd_jax.training import RollbackPolicy
    >>> RollbackPolicy(scale=2.0)
    Traceback (most recent call last):
    ValueError: scale must be in (0, 1), got 2.0
    """

    scale: Annotated[float, between(0, 1, "()"), "of the learning rate, every time"] = (
        0.5
    )
    times: Annotated[int, whole(0), "how often it may go back; 0: never"] = 3

    def __post_init__(self) -> None:
        """Raises unless both can be what they are."""
        settle_options(self)


def rollbacks_in(history: Iterable[Entry]) -> list[Rollback]:
    """Gives the rollbacks of a run so far."""
    return [entry for entry in history if isinstance(entry, Rollback)]


def at_current_rate(
    config: Config, components: Components, progress: Progress
) -> tuple[Config, Components]:
    """Gives config and components the learning rate that a run has come down to.

    Args:
      config: options of the run, with the rate that it began with.
      components: what `build` made of the config.
      progress: how far the run has come.
    """
    rollbacks = rollbacks_in(progress.records)
    rate = rollbacks[-1].learning_rate if rollbacks else config.learning_rate
    now = dataclasses.replace(config, learning_rate=rate)
    ahead = steps_ahead(config, progress)
    if not rollbacks and not ahead:
        return now, components
    schedule = build_schedule(now, sum(map(len, components.shards)), ahead)
    return now, components._replace(
        schedule=schedule,
        optimizer=build_optimizer(now, schedule),
        strategy=build_strategy(now, schedule),
    )


def go_back(
    number: int,
    config: Config,
    components: Components,
    checkpoints: Checkpoints | None,
    history: Sequence[Entry],
    policy: RollbackPolicy,
) -> tuple[WorkerState, Progress]:
    """Takes a run back to its last checkpoint, and lowers its learning rate.

    Args:
      number: the round that diverged.
      config: options of the run, with the rate that it began with.
      components: what `build` made of the config.
      checkpoints: where the run is saved, if it is.
      history: all that happened so far, undone or not.
      policy: how much slower the run goes on.

    Returns:
      The state and the progress to go on with. The records of the progress are the
      history and what is new: the rollback, and the change of layout that goes with a
      checkpoint from before the change.
    """
    state, progress = restore(checkpoints, config, components)
    rates = [config.learning_rate, *(x.learning_rate for x in rollbacks_in(history))]
    back = Rollback(number, progress.round, policy.scale * rates[-1])
    kept = kept_entries([*history, back])
    changed = [
        entry
        for entry in progress.records[-1:]
        if isinstance(entry, Resumed) and entry not in kept
    ]
    progress = progress._replace(records=(*history, back, *changed))
    return restarted(state, config, components), progress


def restarted(
    state: WorkerState, config: Config, components: Components
) -> WorkerState:
    """Puts all workers at the anchor or the consensus, with nothing else learned."""
    has_anchor = hasattr(state.strategy_state, "anchor")
    which = "anchor" if has_anchor else "consensus"
    model = model_of(state, components.strategy, which, components.mesh)
    model = jax.device_get(model)  # to be put on all devices
    return start_workers(model, state, config, components)
