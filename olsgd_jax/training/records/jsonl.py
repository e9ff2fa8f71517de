"""Records: what was measured of a run, as lines of JSON.

The first line of a file says what ran: the whole config, what follows from it, the
versions, the commit and the devices. Every other line is one `Record`, a `Rollback` to
a round before it, or a place where the run was `Resumed` with another layout; but for
the last of a run that came to its end: that one says how.
"""

import collections
import dataclasses
import itertools
import json
import pathlib
from collections.abc import Iterable

import jax

from olsgd_jax._checks import check_choice
from olsgd_jax.training.config import Config
from olsgd_jax.training.describe import Facts
from olsgd_jax.training.files import writing
from olsgd_jax.training.records.header import check_header
from olsgd_jax.training.records.provenance import commit, devices, versions
from olsgd_jax.training.records.rows import fields_of, from_row, parse_row, to_row
from olsgd_jax.training.records.types import (
    OUTCOMES,
    Entry,
    Resumed,
    Rollback,
    Run,
    kept_entries,
    kept_records,
)


def write_records(
    path: pathlib.Path,
    config: Config,
    records: Iterable[Entry],
    facts: Facts | None = None,
) -> None:
    """Writes a run to a file made anew, each record as soon as it comes.

    Of several processes, which all have to ask for the records, the first one writes.

    Args:
      path: path of the file; its directories are made.
      config: options of the run.
      records: as `train` yields them.
      facts: as `describe` gives them.

    Raises:
      FloatingPointError: when the run diverges, after that has been written as well.
      OSError: if the file cannot be written.

    >>> import pathlib, tempfile
    >>> from olsgd_jax.training import Config, read_records, train, write_records
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "run.jsonl"
    >>> config = Config(num_rounds=2)
    >>> write_records(path, config, train(config))
    >>> read_records(path).records[0].round
    2
    """
    if jax.process_index() > 0:
        collections.deque(records, maxlen=0)
        return
    header = {
        "config": dataclasses.asdict(config),
        "facts": facts and facts._asdict(),
        "versions": versions(),
        "commit": commit(),
        "devices": devices(),
    }
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("wb", buffering=0)
    with file:

        def write(row: dict) -> None:
            # Not buffered, so that a run that is stopped leaves whole lines.
            line = json.dumps(row, allow_nan=False).encode() + b"\n"
            with writing(path):
                while line:
                    line = line[file.write(line) :]

        try:
            for row in itertools.chain([header], map(to_row, records)):
                write(row)
        except FloatingPointError:
            write({"outcome": "diverged"})
            raise
        write({"outcome": "finished"})


def read_records(path: pathlib.Path) -> Run:
    """Reads what `write_records` wrote.

    Raises:
      ValueError: if the file is cut off or holds anything else.

    >>> import pathlib, tempfile
    >>> from olsgd_jax.training import Config, read_records, write_records
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "run.jsonl"
    >>> write_records(path, Config(seed=3), [])
    >>> Config(**read_records(path).config) == Config(seed=3)
    True
    """
    try:
        header, *lines = path.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} must be text in UTF-8, got {error}") from error
    if not lines or lines.pop():
        raise ValueError(
            f"{path} must end with a whole line; it was cut off, or is being written"
        )
    first = parse_row(header, Run._fields[:-4], f"{path}, line 1")
    check_header(first, f"{path}, line 1")
    outcome = None
    if lines and '"outcome"' in lines[-1]:
        where = f"{path}, line {len(lines) + 1}"
        outcome = parse_row(lines.pop(), ("outcome",), where)["outcome"]
        check_choice(f"{where}: outcome", outcome, OUTCOMES)
    history = []
    for number, line in enumerate(lines, start=2):
        where = f"{path}, line {number}"
        history.append(from_row(parse_row(line, fields_of(line), where), where))
    return Run(
        **first,
        records=kept_records(history),
        rollbacks=[entry for entry in history if isinstance(entry, Rollback)],
        outcome=outcome,
        resumes=[x for x in kept_entries(history) if isinstance(x, Resumed)],
    )
