"""Files of records: what was measured in a run, as lines of JSON.

The first line, the header, says what ran: the whole config, what follows from it, the
versions, the commit and the devices. Every line after it is a `Record`, a `Rollback` to
an earlier round, or a `Resumed` with another layout. The last line of a run that ended
by itself gives the outcome. A file may come from anywhere, so all of it is checked.
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
from olsgd_jax.training.records.provenance import commit, devices, versions
from olsgd_jax.training.records.rows import (
    checked,
    fields_of,
    from_row,
    parse_row,
    to_row,
)
from olsgd_jax.training.records.types import (
    OUTCOMES,
    Entry,
    Resumed,
    Rollback,
    Run,
    kept_entries,
    kept_records,
)
from olsgd_jax.types import Option


def write_records(
    path: pathlib.Path,
    config: Config,
    records: Iterable[Entry],
    facts: Facts | None = None,
) -> None:
    """Writes a run to a new file, each record as soon as it is measured.

    All processes must call this, since all of them train; only the first one writes.

    Args:
      path: path of the file; its directories are made.
      config: options of the run.
      records: what `train` yields.
      facts: what `describe` returns.

    Raises:
      FloatingPointError: if the run diverges; the file says so too.
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
            # Not buffered, so that a run that is killed leaves whole lines.
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
    _check_header(first, f"{path}, line 1")
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


def _check_header(header: dict[str, Option], where: str) -> None:
    """Raises unless `write_records` can have written this header."""
    try:
        Config(**header["config"])
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{where}: config must be one of a run, but {error}"
        ) from error
    if header["facts"] is not None:
        facts = checked(header["facts"], Facts, f"{where}: facts")
        _check_histogram(facts["histogram"], where)
    versions = header["versions"]
    if not isinstance(versions, dict):
        raise ValueError(f"{where}: versions must be text by package, got {versions!r}")
    texts = {f"versions[{name!r}]": x for name, x in versions.items()}
    texts |= {"commit": header["commit"] or "", "devices": header["devices"]}
    for name, text in texts.items():
        if not isinstance(text, str):
            raise ValueError(f"{where}: {name} must be text, got {text!r}")


def _check_histogram(rows: Option, where: str) -> None:
    def is_row(counts: Option) -> bool:
        return (
            isinstance(counts, list)
            and all(type(x) is int and x >= 0 for x in counts)
            and sum(counts) > 0
        )

    if not isinstance(rows, list) or not rows or not all(map(is_row, rows)):
        raise ValueError(f"{where}: histogram must be counts of every worker")
    if len(set(map(len, rows))) > 1:
        raise ValueError(
            f"{where}: histogram must have as many classes for all workers"
        )
