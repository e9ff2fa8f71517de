"""Records, rollbacks and changes of layout, as rows of JSON."""

import json

from olsgd_jax.training.evaluate import Evaluation
from olsgd_jax.training.options import check_option, option_types
from olsgd_jax.training.records.types import (
    OF_TEXTS,
    Entry,
    Layout,
    Record,
    Resumed,
    Rollback,
)

ROLLBACK, RESUMED = "rollback", "resumed"  # the only key in a row of that kind
_NESTED = ("tests", "before", "after", "histogram")  # fields that contain others


def to_row(entry: Entry) -> dict:
    """Gives an entry as a dict that JSON can hold."""
    if isinstance(entry, Rollback):
        return {ROLLBACK: entry._asdict()}
    if isinstance(entry, Resumed):
        layouts = {x: getattr(entry, x)._asdict() for x in ("before", "after")}
        return {RESUMED: {"round": entry.round, **layouts}}
    tests = {name: test._asdict() for name, test in entry.tests.items()}
    row = {**entry._asdict(), "tests": tests}
    left_out = OF_TEXTS if entry.tokens is None else ()
    return {name: value for name, value in row.items() if name not in left_out}


def fields_of(line: str) -> tuple[str, ...]:
    """Names the fields that the row in a line must hold."""
    kinds = [kind for kind in (ROLLBACK, RESUMED) if f'"{kind}"' in line]
    left_out = () if '"tokens"' in line else OF_TEXTS
    return tuple(kinds) or tuple(x for x in Record._fields if x not in left_out)


def from_row(row: dict, where: str) -> Entry:
    """Undoes `to_row`.

    Args:
      row: a row that holds the fields of its kind.
      where: where the row was found, for errors.
    """
    if ROLLBACK in row:
        return Rollback(**checked(row[ROLLBACK], Rollback, f"{where}: {ROLLBACK}"))
    if RESUMED in row:
        found = checked(row[RESUMED], Resumed, f"{where}: {RESUMED}")
        layouts = {
            name: Layout(**checked(found[name], Layout, f"{where}: {name}"))
            for name in ("before", "after")
        }
        return Resumed(found["round"], **layouts)
    row = {**dict.fromkeys(OF_TEXTS), **row}
    tests = checked(row, Record, where)["tests"]
    if not isinstance(tests, dict) or not tests:
        raise ValueError(f"{where}: tests must hold at least one, got {tests!r}")
    evaluations = {
        name: Evaluation(**checked(test, Evaluation, f"{where}: tests[{name!r}]"))
        for name, test in tests.items()
    }
    return Record(**{**row, "tests": evaluations})


def parse_row(line: str, fields: tuple[str, ...], where: str) -> dict:
    """Reads a line, and raises unless it holds these fields."""
    try:
        row = json.loads(line)
    # A RecursionError where brackets are nested by the thousand.
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where} must be JSON, got {line[:40]!r}") from error
    if not isinstance(row, dict) or set(row) != set(fields):
        got = ", ".join(row) if isinstance(row, dict) else repr(row)
        raise ValueError(f"{where} must hold {', '.join(fields)}, got {got}")
    return row


def checked(row: object, kind: type, where: str) -> dict:
    """Returns a row if its fields and values are those of a named tuple, or raises."""
    fields = option_types(kind)
    if not isinstance(row, dict) or row.keys() != fields.keys():
        raise ValueError(f"{where} must hold {', '.join(fields)}, got {row}")
    for name, option_type in fields.items():
        if name not in _NESTED:
            check_option(f"{where}: {name}", row[name], option_type)
    return row
