"""The first line of a file of records, which may come from anywhere."""

import math

from olsgd_jax._checks import check_number
from olsgd_jax.training.config import Config
from olsgd_jax.training.describe import Facts
from olsgd_jax.types import Option


def check_header(header: dict[str, Option], where: str) -> None:
    """Raises unless a header can be what `write_records` writes.

    Args:
      header: config, facts, versions, commit and devices.
      where: it was found, for errors.

    >>> header = {"config": {}, "facts": None, "versions": {}, "commit": None}
    >>> check_header({**header, "devices": 3}, "run.jsonl, line 1")
    Traceback (most recent call last):
    ValueError: run.jsonl, line 1: devices must be text, got 3
    """
    try:
        Config(**header["config"])
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{where}: config must be one of a run, but {error}"
        ) from error
    if header["facts"] is not None:
        _check_facts(header["facts"], where)
    versions = header["versions"]
    if not isinstance(versions, dict):
        raise ValueError(f"{where}: versions must be text by package, got {versions!r}")
    texts = {f"versions[{name!r}]": x for name, x in versions.items()}
    texts |= {"commit": header["commit"] or "", "devices": header["devices"]}
    for name, text in texts.items():
        if not isinstance(text, str):
            raise ValueError(f"{where}: {name} must be text, got {text!r}")


def _check_facts(facts: Option, where: str) -> None:
    fields = ", ".join(Facts._fields)
    if not isinstance(facts, dict) or set(facts) != set(Facts._fields):
        raise ValueError(f"{where}: facts must hold {fields}, got {facts!r}")
    for name in Facts._fields[:-1]:
        check_number(f"{where}: {name}", facts[name], 0, math.inf, "[)")
    rows = facts["histogram"]
    if not isinstance(rows, list) or not rows or not all(map(_is_row, rows)):
        raise ValueError(f"{where}: histogram must be counts of every worker")
    if len(set(map(len, rows))) > 1:
        raise ValueError(
            f"{where}: histogram must have as many classes for all workers"
        )


def _is_row(counts: Option) -> bool:
    return (
        isinstance(counts, list)
        and all(type(x) is int and x >= 0 for x in counts)
        and sum(counts) > 0
    )
