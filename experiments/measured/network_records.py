"""Records of what `network` measured: a file of JSON lines, one for every case."""

import json
import os
import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from experiments.pages.names import named
from experiments.pages.reading import parse_json
from olsgd_jax import REDUCTIONS

NETWORK = "network.jsonl"
"""Name of a file of them."""

Record = Mapping  # a case, what was measured of it, and on which machine


MAX_STEPS, MAX_DEPTH = 100_000, 1_000
"""Larger records take too long to model; results here have 200 steps and depth 8."""


def read(file: pathlib.Path) -> list[dict]:
    """Reads what `write` wrote."""
    lines = file.read_text(encoding="utf-8").splitlines()
    records = [parse_json(line) for line in lines]
    for record in records:
        _check_size(record)
    return records


def _check_size(record: Record) -> None:
    num_steps = record["sync_period"] * record.get("num_rounds", 1)
    for name, size, most in (
        ("sync_period times num_rounds", num_steps, MAX_STEPS),
        ("depth", record["depth"], MAX_DEPTH),
    ):
        if not 1 <= size <= most:
            raise ValueError(f"{name} must be 1 to {most:,}, got {size}")


def write(file: pathlib.Path, records: Iterable[Record]) -> None:
    """Replaces the file with all records at once, so that none is ever cut off."""
    file.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(record) + "\n" for record in records)
    new = file.with_suffix(".new")
    new.write_text(text, encoding="utf-8")
    os.replace(new, file)


def groups(records: Iterable[Record]) -> dict[str, list[Record]]:
    """Groups records that may be compared, each group under its title.

    Of two records of the same case, the later one counts.
    """
    found: dict[tuple, dict[tuple, Record]] = {}
    for x in records:
        group = x["num_hosts"], x["width"], x["depth"], x["machine"], x["num_cores"]
        case = x["rate"], x["strategy"], x["sync_period"]
        found.setdefault(group, {})[case] = x
    return {_title(list(own.values())): list(own.values()) for own in found.values()}


class Label(NamedTuple):
    """What the label of a case says."""

    strategy: str  # its name
    stream: bool
    reduction: str  # its name
    args: dict[str, float]  # of the reduction


def read_label(label: str) -> Label:
    """Reads a label: a strategy, and after colons "stream", a reduction and its rank.

    >>> read_label("sync_sgd:low_rank:4")
    Label(strategy='sync_sgd', stream=False, reduction='low_rank', args={'rank': 4})
    """
    found = re.fullmatch(r"(\w+)(:stream)?(?::([a-z]\w*))?(?::(\d+))?", label)
    strategy, stream, reduction, rank = (
        found.groups() if found else (label, *[None] * 3)
    )
    if (
        found is None
        or (reduction is not None and reduction not in REDUCTIONS)
        or (rank is not None and reduction != "low_rank")
    ):
        raise ValueError(
            "a strategy may have stream or a reduction after its colon, as in "
            f"local_sgd:int8 or sync_sgd:low_rank:4 (rank 4), got {label}"
        )
    args: dict[str, float] = {} if rank is None else {"rank": int(rank)}
    return Label(strategy, stream is not None, reduction or "exact", args)


def name_of(label: str) -> str:
    """Names a strategy in prose; its optimizer has no momentum here.

    >>> name_of("sync_sgd:low_rank:4"), name_of("easgd")
    ('PowerSGD, rank 4', 'EASGD')
    """
    strategy, stream, reduction, args = read_label(label)
    name, detail = named(strategy, reduction, args)
    return ", ".join(filter(None, (name, "streamed" if stream else "", detail)))


def rate_of(rate: str) -> str:
    """Formats a rate for people.

    >>> rate_of("200mbit")
    '200 Mbit/s'
    """
    return f"{rate[:-4]} {rate[-4:].capitalize()}/s"


def _title(records: Sequence[Record]) -> str:
    x = records[0]
    parameters = x["depth"] * x["width"] ** 2
    title = f"{x['num_hosts']} hosts, {parameters:,} parameters, {x['machine']}"
    shared = -(-x["num_hosts"] // x["num_cores"])
    return f"{title}, {shared} hosts on a core" if shared > 1 else title
