"""What a run has to remember beside its state, to go on as if it had never stopped.

Batches follow from the round's number and random keys never change, so nothing of them
is in here.
"""

import dataclasses
from typing import NamedTuple

from olsgd_jax.checkpoints import Checkpoints
from olsgd_jax.config import Config
from olsgd_jax.local import WorkerState
from olsgd_jax.provenance import commit, versions
from olsgd_jax.record import Record, Rollback, kept_records
from olsgd_jax.rows import from_row, to_row
from olsgd_jax.types import Option

FREE = ("num_rounds", "data_dir", "mapping")
"""Options that may change when a run goes on; all others have made it what it is."""


class Progress(NamedTuple):
    """How far a run has come."""

    round: int = 0  # rounds so far
    seconds: float = 0.0  # spent in them
    losses: tuple[float, ...] = ()  # of every round since the last record
    last_loss: float | None = None  # of the last round
    records: tuple[Record | Rollback, ...] = ()  # all that there were, undone or not


def save(
    checkpoints: Checkpoints, config: Config, state: WorkerState, progress: Progress
) -> None:
    """Saves a run; the checkpoint with the best test accuracy stays."""
    rows = [to_row(record) for record in progress.records]
    facts = {
        **progress._asdict(),
        "records": rows,
        "config": dataclasses.asdict(config),
        "versions": versions(),
        "commit": commit(),
    }
    accuracies = [record.test_accuracy for record in kept_records(progress.records)]
    score = accuracies[-1] if accuracies else float("-inf")
    checkpoints.save(progress.round, state, facts, score)


def restore(
    checkpoints: Checkpoints, config: Config, state: WorkerState
) -> tuple[WorkerState, Progress]:
    """Reads the newest checkpoint of a run, or starts from the given state.

    Raises:
      ValueError: if the checkpoint is of a run with other options.
    """

    def like(facts: dict) -> WorkerState:
        _check_same_run(facts["config"], config)
        return state

    found = checkpoints.restore(like)
    if found is None:
        return state, Progress()
    facts, where = found.facts, f"checkpoint {found.number}"
    records = tuple(from_row(row, where) for row in facts["records"])
    kept = {name: facts[name] for name in Progress._fields if name != "records"}
    kept["losses"] = tuple(kept["losses"])
    return found.tree, Progress(**kept, records=records)


def _check_same_run(found: dict[str, Option], config: Config) -> None:
    kept, asked = dataclasses.asdict(Config(**found)), dataclasses.asdict(config)
    changed = [
        f"{name} was {kept[name]!r}, not {asked[name]!r}"
        for name in asked
        if kept[name] != asked[name] and name not in FREE
    ]
    if changed:
        raise ValueError(
            f"config must be that of the run which goes on, but {'; '.join(changed)}"
        )
