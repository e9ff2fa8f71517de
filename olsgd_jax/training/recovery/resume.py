"""What a run saves besides its state, to resume as if it had never stopped.

Batches follow from the round number and random keys never change, so neither has to be
saved.

A run may resume with another number of workers (see `elastic`), on other devices, in
another number of processes or under another mapping; its records say so. Partition and
batches are then those of a run that had the new number of workers from the beginning.
The learning rate is scaled to the new number of workers, if it is scaled at all. Its
schedule counts the epochs that all workers together have completed. The number of
rounds stays as in the config.
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
"""Options that may change when a run resumes.

A cosine ends with the run, so under it the number of rounds may not change.
"""

_PRECISION = "jax_default_matmul_precision"


class Progress(NamedTuple):
    """How far a run has come."""

    round: int = 0  # rounds so far
    seconds: float = 0.0  # spent in these rounds
    losses: tuple[float, ...] = ()  # mean loss of each round since the last record
    last_loss: float | None = None  # mean loss of the last round
    examples: int = 0  # processed by all workers so far, repeats included
    records: tuple[Entry, ...] = ()  # all entries so far, including those undone


def save(
    checkpoints: Checkpoints, config: Config, state: WorkerState, progress: Progress
) -> None:
    """Saves a run, with the score of its last record as that of the checkpoint."""
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
    scores = [record.score for record in kept_records(progress.records)]
    score = scores[-1] if scores else None
    checkpoints.save(progress.round, state, facts, score)


def restore(
    checkpoints: Checkpoints | None, config: Config, components: Components
) -> tuple[WorkerState, Progress]:
    """Reads the newest checkpoint of a run; starts the run if there is none.

    Raises:
      ValueError: if the checkpoint is from a run with other options.
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
    kept = {name: found.facts[name] for name in Progress._fields}
    where = f"checkpoint {found.number}"
    kept["losses"] = tuple(kept["losses"])
    kept["records"] = tuple(from_row(row, where) for row in kept["records"])
    progress = Progress(**kept)
    before, after = Layout(**found.facts["layout"]), _layout(config)
    if before != after and progress.round < config.num_rounds:
        change = Resumed(progress.round, before, after)
        progress = progress._replace(records=(*progress.records, change))
    return state, progress


def compiler_settings() -> dict[str, str]:
    """Gives the settings that affect how programs are compiled."""
    flags = os.environ.get("XLA_FLAGS", "").split()
    # The number of devices is in the layout, and does not affect arithmetic.
    flags = [x for x in flags if "xla_force_host_platform_device_count" not in x]
    return {
        "XLA_FLAGS": " ".join(sorted(flags)),
        "LIBTPU_INIT_ARGS": os.environ.get("LIBTPU_INIT_ARGS", ""),
        _PRECISION: str(getattr(jax.config, _PRECISION)),
    }


def steps_ahead(config: Config, progress: Progress) -> float:
    """Counts the local steps by which a run is ahead of its number of rounds.

    A run is ahead if it had more workers before, and behind if it had fewer.

    >>> config = Config(num_workers=2, sync_period=4, batch_size=32)
    >>> steps_ahead(config, Progress(round=1, examples=4 * 4 * 32))  # of 4 workers
    4.0
    """
    per_step = config.num_workers * config.batch_size
    # Integers first: the result does not depend on where the run was stopped.
    return (progress.examples - config.num_steps(progress.round) * per_step) / per_step


def _layout(config: Config) -> Layout:
    return Layout(config.num_workers, config.mapping, devices(), jax.process_count())


def _warn_of_changes(facts: dict, number: int) -> None:
    settings = [
        f"{name} was {facts['compiler'].get(name, '')!r}, now {now!r}"
        for name, now in compiler_settings().items()
        if facts["compiler"].get(name) != now
    ]
    if changed := [*changed_versions(facts["versions"]), *settings]:
        warnings.warn(
            f"checkpoint {number} was written with other versions or settings: "
            f"{'; '.join(changed)}; the last bits of the run's numbers may differ",
            stacklevel=4,
        )


def _check_facts(facts: dict) -> None:
    """Raises unless a checkpoint was written by `save`."""
    missing = {*Progress._fields, "config", "layout", "versions", "compiler"}
    missing -= facts.keys()
    if missing:
        raise ValueError(
            "checkpoints must be written by train, got one without "
            f"{', '.join(sorted(missing))}; use another directory"
        )


def _check_same_run(found: dict[str, Option], config: Config) -> None:
    try:
        kept = dataclasses.asdict(Config(**found))
    except TypeError as error:
        raise ValueError(
            f"checkpoints must be from this version of the library, but {error}; "
            "resume with the version that started the run"
        ) from error
    asked = dataclasses.asdict(config)
    free = set(FREE)
    if config.schedule == "warmup_cosine":
        free.remove("num_rounds")
    changed = [
        f"{name} was {kept[name]!r}, now {asked[name]!r}"
        for name in asked
        if kept[name] != asked[name] and name not in free
    ]
    if changed:
        raise ValueError(f"cannot resume with a different config: {'; '.join(changed)}")
