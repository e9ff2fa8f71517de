"""Rollback: a run that diverged resumes from its last checkpoint, at a lower rate.

    xᵢ ← z of the checkpoint, or mean x if the strategy keeps no anchor
    γ  ← scale γ

Momentum, velocities, what a reduction has not sent and the like are reset. Step counts
are kept, so that schedules continue, and so are rounds and random keys, so that every
round has the batches that it would have had. Without a checkpoint, the run starts
again. A checkpoint with another number of workers is resized first (see `elastic`).
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
    """How often a run may go back, and how much it lowers its learning rate.

    All numbers in a checkpoint are finite, but its model may be beyond recovery
    already. Then no rate helps, and the run ends after `times` rollbacks.

    >>> from olsgd_jax.training import RollbackPolicy
    >>> RollbackPolicy(scale=2.0)
    Traceback (most recent call last):
    ValueError: scale must be in (0, 1), got 2.0
    """

    scale: Annotated[
        float, between(0, 1, "()"), "factor of the learning rate at every rollback"
    ] = 0.5
    times: Annotated[int, whole(0), "number of rollbacks allowed; 0: none"] = 3

    def __post_init__(self) -> None:
        """Raises unless both values are allowed."""
        settle_options(self)


def rollbacks_in(history: Iterable[Entry]) -> list[Rollback]:
    """Lists the rollbacks of a run so far."""
    return [entry for entry in history if isinstance(entry, Rollback)]


def at_current_rate(
    config: Config, components: Components, progress: Progress
) -> tuple[Config, Components]:
    """Gives config and components the learning rate after the rollbacks so far.

    Args:
      config: options of the run, with its first learning rate.
      components: what `build` made of the config.
      progress: how far the run has come.
    """
    rollbacks = rollbacks_in(progress.records)
    rate = rollbacks[-1].learning_rate if rollbacks else config.learning_rate
    now = dataclasses.replace(config, learning_rate=rate)
    ahead = steps_ahead(config, progress)
    if not rollbacks and not ahead:
        return now, components
    schedule = build_schedule(
        now, components.dataset.epoch_size(components.shards), ahead
    )
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
      config: options of the run, with its first learning rate.
      components: what `build` made of the config.
      checkpoints: where the run is saved, if it is.
      history: all entries so far, including those undone.
      policy: by how much to lower the learning rate.

    Returns:
      The state and the progress to resume from. Its records are the history, the
      rollback, and the change of layout if the checkpoint is from before that change.
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
    """Starts all workers from the anchor, or from the consensus if there is none."""
    has_anchor = hasattr(state.strategy_state, "anchor")
    which = "anchor" if has_anchor else "consensus"
    model = model_of(state, components.strategy, which, components.mesh)
    model = jax.device_get(model)  # uncommitted, to go to all devices
    return start_workers(model, state, config, components)
