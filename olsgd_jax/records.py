"""Records: what was measured of a run, as lines of JSON.

The first line of a file says what ran: the whole config, what follows from it, the
versions, the commit and the devices. Every other line is one `Record`, but for the
last of a run that came to its end: that one says how.
"""

import collections
import dataclasses
import itertools
import json
import math
import pathlib
from collections.abc import Iterable

import jax

from olsgd_jax.checks import check_choice, check_number
from olsgd_jax.config import Config
from olsgd_jax.describe import Facts
from olsgd_jax.evaluate import Evaluation
from olsgd_jax.provenance import commit, versions
from olsgd_jax.record import OUTCOMES, Record, Run


def write_records(
    path: pathlib.Path,
    config: Config,
    records: Iterable[Record],
    facts: Facts | None = None,
) -> None:
    """Writes a run to a file made anew, each record as soon as it comes.

    Of several processes, which all have to ask for the records, the first one writes.

    Args:
      path: of the file; its directories are made.
      config: of the run.
      records: as `train` yields them.
      facts: as `describe` gives them.

    Raises:
      FloatingPointError: when the run diverges, after that has been written as well.

    >>> import pathlib, tempfile
    >>> from olsgd_jax import Config, read_records, train, write_records
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
        "devices": f"{jax.device_count()} x {jax.devices()[0].device_kind}",
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:

        def write(row: dict) -> None:
            # Flushed in one piece, so that a run that is stopped leaves whole lines.
            file.write(json.dumps(row, allow_nan=False) + "\n")
            file.flush()

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
    >>> from olsgd_jax import Config, read_records, write_records
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "run.jsonl"
    >>> write_records(path, Config(seed=3), [])
    >>> Config(**read_records(path).config) == Config(seed=3)
    True
    """
    header, *lines = path.read_text(encoding="utf-8").split("\n")
    if not lines or lines.pop():
        raise ValueError(
            f"{path} must end with a whole line; it was cut off, or is being written"
        )
    first = _parse(header, Run._fields[:-2], f"{path}, line 1")
    outcome = None
    if lines and '"outcome"' in lines[-1]:
        where = f"{path}, line {len(lines) + 1}"
        outcome = _parse(lines.pop(), ("outcome",), where)["outcome"]
        check_choice(f"{where}: outcome", outcome, OUTCOMES)
    records = []
    for number, line in enumerate(lines, start=2):
        where = f"{path}, line {number}"
        records.append(to_record(_parse(line, Record._fields, where), where))
    return Run(**first, records=records, outcome=outcome)


def to_row(record: Record) -> dict:
    """Gives a record as it can be written in JSON."""
    tests = {name: test._asdict() for name, test in record.tests.items()}
    return {**record._asdict(), "tests": tests}


def to_record(row: dict, where: str) -> Record:
    """Undoes `to_row`.

    Args:
      row: has the fields of a record.
      where: it was found, for errors.
    """
    numbers = dict(row)
    tests = numbers.pop("tests")
    if not isinstance(tests, dict) or not tests:
        raise ValueError(f"{where}: tests must hold at least one, got {tests!r}")
    for name, test in tests.items():
        if not isinstance(test, dict) or set(test) != set(Evaluation._fields):
            fields = ", ".join(Evaluation._fields)
            raise ValueError(f"{where}: tests[{name!r}] must hold {fields}, got {test}")
        numbers |= {f"tests[{name!r}]: {field}": x for field, x in test.items()}
    for name, value in numbers.items():
        check_number(f"{where}: {name}", value, -math.inf, math.inf, "()")
    evaluations = {name: Evaluation(**x) for name, x in tests.items()}
    return Record(**{**row, "tests": evaluations})


def _parse(line: str, fields: tuple[str, ...], where: str) -> dict:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"{where} must be JSON, got {line[:40]!r}") from error
    if not isinstance(row, dict) or set(row) != set(fields):
        got = ", ".join(row) if isinstance(row, dict) else repr(row)
        raise ValueError(f"{where} must hold {', '.join(fields)}, got {got}")
    return row
