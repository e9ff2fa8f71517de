"""What happened in a run, as rows of JSON."""

import json

from olsgd_jax.training.evaluate import Evaluation
from olsgd_jax.training.options import check_option, option_types
from olsgd_jax.training.records.types import Entry, Layout, Record, Resumed, Rollback

ROLLBACK, RESUMED = "rollback", "resumed"  # the one name in a row of that kind
_NESTED = ("tests", "before", "after")  # fields that hold others


def to_row(entry: Entry) -> dict:
    """Gives a record, or what else happened, as it can be written in JSON."""
    if isinstance(entry, Rollback):
        return {ROLLBACK: entry._asdict()}
    if isinstance(entry, Resumed):
        layouts = {x: getattr(entry, x)._asdict() for x in ("before", "after")}
        return {RESUMED: {"round": entry.round, **layouts}}
    tests = {name: test._asdict() for name, test in entry.tests.items()}
    return {**entry._asdict(), "tests": tests}


def fields_of(line: str) -> tuple[str, ...]:
    """Says which fields a row has to hold, by what stands in its line."""
    kinds = [kind for kind in (ROLLBACK, RESUMED) if f'"{kind}"' in line]
    return tuple(kinds) or Record._fields


def from_row(row: dict, where: str) -> Entry:
    """Undoes `to_row`.

    Args:
      row: has the fields of a record, or the one of another kind.
      where: it was found, for errors.
    """
    if ROLLBACK in row:
        return _rollback(row[ROLLBACK], where)
    return _resumed(row[RESUMED], where) if RESUMED in row else _record(row, where)


def parse_row(line: str, fields: tuple[str, ...], where: str) -> dict:
    """Reads a line that has to hold these fields."""
    try:
        row = json.loads(line)
    # The second where brackets are nested by the thousand.
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where} must be JSON, got {line[:40]!r}") from error
    if not isinstance(row, dict) or set(row) != set(fields):
        got = ", ".join(row) if isinstance(row, dict) else repr(row)
        raise ValueError(f"{where} must hold {', '.join(fields)}, got {got}")
    return row


def _checked(row: object, kind: type, where: str) -> dict:
    """Gives a row that holds the fields of a tuple, each with a value that can be."""
    fields = option_types(kind)
    if not isinstance(row, dict) or row.keys() != fields.keys():
        raise ValueError(f"{where} must hold {', '.join(fields)}, got {row}")
    for name, option_type in fields.items():
        if name not in _NESTED:
            check_option(f"{where}: {name}", row[name], option_type)
    return row


def _resumed(found: object, where: str) -> Resumed:
    row = _checked(found, Resumed, f"{where}: {RESUMED}")
    layouts = {
        name: Layout(**_checked(row[name], Layout, f"{where}: {name}"))
        for name in ("before", "after")
    }
    return Resumed(row["round"], **layouts)


def _rollback(found: object, where: str) -> Rollback:
    return Rollback(**_checked(found, Rollback, f"{where}: {ROLLBACK}"))


def _record(row: dict, where: str) -> Record:
    tests = _checked(row, Record, where)["tests"]
    if not isinstance(tests, dict) or not tests:
        raise ValueError(f"{where}: tests must hold at least one, got {tests!r}")
    evaluations = {
        name: Evaluation(**_checked(test, Evaluation, f"{where}: tests[{name!r}]"))
        for name, test in tests.items()
    }
    return Record(**{**row, "tests": evaluations})
