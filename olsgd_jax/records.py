"""Records: what was measured of a run, as lines of JSON.

The first line of a file says what ran: the whole config, the versions, the commit and
the devices. Every other line is one `Record`.
"""

import dataclasses
import itertools
import json
import math
import pathlib
from collections.abc import Iterable
from typing import NamedTuple

import jax

from olsgd_jax.checks import check_number
from olsgd_jax.config import Config
from olsgd_jax.provenance import commit, versions


class Record(NamedTuple):
    """What was measured at one evaluation.

    >>> from olsgd_jax import Config, Record, train
    >>> [record] = train(Config(num_rounds=1))
    >>> record.step, record.examples
    (4, 512)
    """

    round: int  # rounds so far
    step: int  # local steps so far, of each worker
    examples: int  # that all workers have learned from so far, repeats included
    train_loss: float  # mean over workers and local steps since the last record
    test_loss: float  # of the evaluated model
    test_accuracy: float  # of the evaluated model, in [0, 1]
    spread: float  # mean squared distance of the workers to the consensus
    bytes_per_step: float  # that one worker hands to the network, per local step
    seconds: float  # spent in rounds so far; neither compilation nor evaluation


class Run(NamedTuple):
    """The contents of one file of records.

    >>> import pathlib, tempfile
    >>> from olsgd_jax import Config, read_records, write_records
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "run.jsonl"
    >>> write_records(path, Config(strategy="local_sgd"), records=[])
    >>> run = read_records(path)
    >>> run.config["strategy"], run.records
    ('local_sgd', [])
    """

    config: dict[str, object]  # as it was written; Config(**config) rebuilds it
    versions: dict[str, str]  # of Python and the packages that decide the numbers
    commit: str | None  # of this library; None where it ran outside of git
    devices: str  # how many of which kind
    records: list[Record]


def write_records(
    path: pathlib.Path, config: Config, records: Iterable[Record]
) -> None:
    """Writes a run to a file made anew, each record as soon as it comes.

    Args:
      path: of the file; its directories are made.
      config: of the run.
      records: as `train` yields them.

    >>> import pathlib, tempfile
    >>> from olsgd_jax import Config, Record, read_records, write_records
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "run.jsonl"
    >>> write_records(path, Config(), [Record(1, 4, 512, 2.1, 2.0, 0.4, 0.1, 9, 0.2)])
    >>> read_records(path).records[0].test_accuracy
    0.4
    """
    header = {
        "config": dataclasses.asdict(config),
        "versions": versions(),
        "commit": commit(),
        "devices": f"{jax.device_count()} x {jax.devices()[0].device_kind}",
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        for row in itertools.chain([header], map(Record._asdict, records)):
            # Flushed in one piece, so that a run that is stopped leaves whole lines.
            file.write(json.dumps(row, allow_nan=False) + "\n")
            file.flush()


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
    first = _parse(header, Run._fields[:-1], f"{path}, line 1")
    records = []
    for number, line in enumerate(lines, start=2):
        where = f"{path}, line {number}"
        record = Record(**_parse(line, Record._fields, where))
        for name, value in record._asdict().items():
            check_number(f"{where}: {name}", value, -math.inf, math.inf, "()")
        records.append(record)
    return Run(**first, records=records)


def _parse(line: str, fields: tuple[str, ...], where: str) -> dict:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"{where} must be JSON, got {line[:40]!r}") from error
    if not isinstance(row, dict) or set(row) != set(fields):
        got = ", ".join(row) if isinstance(row, dict) else repr(row)
        raise ValueError(f"{where} must hold {', '.join(fields)}, got {got}")
    return row
