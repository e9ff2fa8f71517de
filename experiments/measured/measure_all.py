"""Measurements written one by one, so that a stopped script can continue."""

import json
import os
import pathlib
import platform
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from rich.console import Console

from experiments.cli.progress import make_progress
from experiments.measured.network_records import write
from experiments.pages.reading import parse_json
from olsgd_jax.training import commit, versions


class Asked(Protocol):
    """A named tuple that says what to measure."""

    @property
    def name(self) -> str:
        """Its name while it runs."""
        ...

    def _asdict(self) -> dict: ...


Case = TypeVar("Case", bound=Asked)


def measure_all(
    asked: Sequence[Case],
    measure: Callable[[Case], dict],
    file: pathlib.Path,
    console: Console,
    say: Callable[[dict], str] = lambda record: "",
) -> list[dict]:
    """Measures every case that the file lacks; returns all records of the file.

    Args:
      asked: all cases.
      measure: measures one case; the record holds the case and what this returns.
      file: a file of JSON lines, one per case.
      console: shows the progress.
      say: describes a new record in a line; an empty one is not printed.
    """
    records = read_kept(file)
    todo = [case for case in asked if not any(_is_of(x, case) for x in records)]
    with make_progress(console) as progress:
        kept = len(asked) - len(todo)
        task = progress.add_task("cases", total=len(asked), completed=kept, shown="")
        for case in todo:
            progress.update(task, shown=case.name)
            records.append({**case._asdict(), **measure(case), **conditions()})
            write(file, records)
            if text := say(records[-1]):
                progress.print(f"{case.name}: {text}")
            progress.advance(task)
    return records


def read_kept(file: pathlib.Path) -> list[dict]:
    """Reads the records of earlier runs; a last line that was cut off is not one."""
    if not file.exists():
        return []
    lines = file.read_text(encoding="utf-8").split("\n")[:-1]
    return [parse_json(line) for line in lines]


def conditions() -> dict[str, object]:
    """Describes the machine and software of a measurement made now."""
    return {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "num_cores": num_cores(),
        "versions": versions(),
        "commit": commit(),
    }


def num_cores() -> int:
    """Counts the cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _is_of(record: dict, case: Asked) -> bool:
    return json.loads(json.dumps(case._asdict())).items() <= record.items()
