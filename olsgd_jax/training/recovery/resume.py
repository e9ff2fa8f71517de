"""What a run remembers besides its state, to go on as if it had never stopped.

Batches follow from the round's number and random keys never change, so nothing of them
is in here.

A run may go on with another number of workers (see `resize`), on other devices, in
another number of processes or under another mapping; its records say so. Examples are
then shared out as for a run that had so many workers from its beginning, and every
worker takes the batches that the round has in such a run. The learning rate is scaled
to the workers of now, if it is scaled at all, and goes by the epochs that all workers
together have behind them. The number of rounds stays what the config says.
"""

import dataclasses
import os
import warnings
from typing import NamedTuple

import jax

from olsgd_jax.round.local_steps import WorkerState
from olsgd_jax.training.checkpoints import Checkpoints
from olsgd_jax.training.components import Components
from olsgd_jax.training.config import Config
from olsgd_jax.training.records.provenance import (
    changed_versions,
    commit,
    devices,
    versions,
)
from olsgd_jax.training.records.rows import from_row, to_row
from olsgd_jax.training.records.types import Entry, Layout, Resumed, kept_records
from olsgd_jax.training.recovery.elastic import like_workers, resized
from olsgd_jax.types import Option

FREE = ("num_workers", "num_rounds", "data_dir", "mapping")
"""Options that may change when a run goes on; all others have made it what it is."""

_PRECISION = "jax_default_matmul_precision"


class Progress(NamedTuple):
    """How far a run has come."""

    round: int = 0  # rounds so far
    seconds: float = 0.0  # spent in them
    losses: tuple[float, ...] = ()  # of every round since the last record
    last_loss: float | None = None  # of the last round
    examples: int = 0  # that all workers have learned from, repeats included
    records: tuple[Entry, ...] = ()  # all that there were, undone or not


def save(
    checkpoints: Checkpoints, config: Config, state: WorkerState, progress: Progress
) -> None:
    """Saves a run; the checkpoint with the best test accuracy stays."""
    rows = [to_row(record) for record in progress.records]
    facts = {
        **progress._asdict(),
        "records": rows,
        "config": dataclasses.asdict(config),
        "layout": _layout(config)._asdict(),
        "versions": versions(),
        "compiler": compiler_settings(),
        "commit": commit(),
    }
    accuracies = [record.test_accuracy for record in kept_records(progress.records)]
    score = accuracies[-1] if accuracies else None
    checkpoints.save(progress.round, state, facts, score)


def restore(
    checkpoints: Checkpoints | None, config: Config, components: Components
) -> tuple[WorkerState, Progress]:
    """Reads the newest checkpoint of a run; starts it where there is none.

    Raises:
      ValueError: if the checkpoint is of a run with other options.
    """
    start = components.init()

    def like(facts: dict) -> WorkerState:
        _check_facts(facts)
        _check_same_run(facts["config"], config)
        m = facts["config"]["num_workers"]
        same = m == config.num_workers
        return start if same else like_workers(start, m, components.mesh)

    found = checkpoints and checkpoints.restore(like)
    if found is None:
        return start, Progress()
    _warn_of_changes(found.facts, found.number)
    state = resized(found.tree, config, components)
    progress = _progress(found.facts, f"checkpoint {found.number}")
    before, after = Layout(**found.facts["layout"]), _layout(config)
    if before != after and progress.round < config.num_rounds:
        change = Resumed(progress.round, before, after)
        progress = progress._replace(records=(*progress.records, change))
    return state, progress


def compiler_settings() -> dict[str, str]:
    """Gives what decides how programs are compiled, in addition to the versions."""
    flags = os.environ.get("XLA_FLAGS", "").split()
    # The number of devices is in the layout, and changes no program's arithmetic.
    flags = [x for x in flags if "xla_force_host_platform_device_count" not in x]
    return {
        "XLA_FLAGS": " ".join(sorted(flags)),
        "LIBTPU_INIT_ARGS": os.environ.get("LIBTPU_INIT_ARGS", ""),
        _PRECISION: str(getattr(jax.config, _PRECISION)),
    }


def steps_ahead(config: Config, progress: Progress) -> float:
    """Says by how many local steps a run is further than their number says.

    >>> config = Config(num_workers=2, sync_period=4, batch_size=32)
    >>> steps_ahead(config, Progress(round=1, examples=4 * 4 * 32))  # of 4 workers
    4.0
    """
    per_step = config.num_workers * config.batch_size
    # Whole numbers first: the same result wherever the run is stopped.
    return (progress.examples - config.num_steps(progress.round) * per_step) / per_step


def _progress(facts: dict, where: str) -> Progress:
    kept = {name: facts[name] for name in Progress._fields}
    kept["losses"] = tuple(kept["losses"])
    kept["records"] = tuple(from_row(row, where) for row in kept["records"])
    return Progress(**kept)


def _layout(config: Config) -> Layout:
    return Layout(config.num_workers, config.mapping, devices(), jax.process_count())


def _warn_of_changes(facts: dict, number: int) -> None:
    settings = [
        f"{name} was {facts['compiler'].get(name, '')!r}, is {now!r}"
        for name, now in compiler_settings().items()
        if facts["compiler"].get(name) != now
    ]
    if changed := [*changed_versions(facts["versions"]), *settings]:
        warnings.warn(
            f"checkpoint {number} is of other versions or settings: "
            f"{'; '.join(changed)}; the run goes on, but the last bits of its numbers "
            "may differ",
            stacklevel=4,
        )


def _check_facts(facts: dict) -> None:
    """Raises unless a checkpoint holds what `save` puts there."""
    missing = {*Progress._fields, "config", "layout", "versions", "compiler"}
    missing -= facts.keys()
    if missing:
        raise ValueError(
            "checkpoints must be of a run of train, got one without "
            f"{', '.join(sorted(missing))}; use another directory"
        )


def _check_same_run(found: dict[str, Option], config: Config) -> None:
    try:
        kept = dataclasses.asdict(Config(**found))
    except TypeError as error:
        raise ValueError(
            f"checkpoints must be of this version of the library, but {error}; go on "
            "with the version that began the run"
        ) from error
    asked = dataclasses.asdict(config)
    changed = [
        f"{name} was {kept[name]!r}, not {asked[name]!r}"
        for name in asked
        if kept[name] != asked[name] and name not in FREE
    ]
    if changed:
        raise ValueError(
            f"config must be that of the run which goes on, but {'; '.join(changed)}"
        )
