"""Records and rollbacks as rows of JSON."""

import json
import math

from olsgd_jax.checks import check_number
from olsgd_jax.evaluate import Evaluation
from olsgd_jax.record import Record, Rollback

ROLLBACK = "rollback"  # the one name in the row of a rollback


def to_row(record: Record | Rollback) -> dict:
    """Gives a record or a rollback as it can be written in JSON."""
    if isinstance(record, Rollback):
        return {ROLLBACK: record._asdict()}
    tests = {name: test._asdict() for name, test in record.tests.items()}
    return {**record._asdict(), "tests": tests}


def from_row(row: dict, where: str) -> Record | Rollback:
    """Undoes `to_row`.

    Args:
      row: has the fields of a record, or that of a rollback.
      where: it was found, for errors.
    """
    return _rollback(row[ROLLBACK], where) if ROLLBACK in row else _record(row, where)


def parse_row(line: str, fields: tuple[str, ...], where: str) -> dict:
    """Reads a line that has to hold these fields."""
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"{where} must be JSON, got {line[:40]!r}") from error
    if not isinstance(row, dict) or set(row) != set(fields):
        got = ", ".join(row) if isinstance(row, dict) else repr(row)
        raise ValueError(f"{where} must hold {', '.join(fields)}, got {got}")
    return row


def _rollback(row: object, where: str) -> Rollback:
    if not isinstance(row, dict) or set(row) != set(Rollback._fields):
        fields = ", ".join(Rollback._fields)
        raise ValueError(f"{where}: {ROLLBACK} must hold {fields}, got {row}")
    for name, value in row.items():
        check_number(f"{where}: {name}", value, 0, math.inf, "[)")
    return Rollback(**row)


def _record(row: dict, where: str) -> Record:
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
