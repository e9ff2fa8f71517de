"""Records of `race`: one file of JSON for each run and for each search."""

import json
import os
import pathlib
from collections.abc import Mapping
from typing import NamedTuple

from experiments.measured.race_contenders import Setting, config_of, searched
from experiments.pages.reading import parse_json
from olsgd_jax.training import Config

RUNS, SEARCHES = "run-*.json", "search-*.json"
"""Patterns of the names of the files."""


class Asked(NamedTuple):
    """What is run: a contender on hosts, until it reaches a target."""

    contender: str
    num_hosts: int
    rate: str  # of every link, each way
    setting: Setting
    target: float  # test accuracy that ends a run
    limit: float  # seconds on the clock that end it otherwise

    @property
    def name(self) -> str:
        """Its name, which is that of its file."""
        return f"{self.num_hosts}-hosts-{self.rate}-{self.contender}"

    def file(self, out: pathlib.Path) -> pathlib.Path:
        """Returns the path of its record in a directory."""
        return out / RUNS.replace("*", self.name)

    def search_file(self, out: pathlib.Path) -> pathlib.Path:
        """Returns the path of the search for its learning rate; links do not matter."""
        name = f"{self.num_hosts}-workers-{searched(self.contender)}"
        return out / SEARCHES.replace("*", name)

    def config(self, learning_rate: float) -> Config:
        """Makes the config of its run."""
        return config_of(self.contender, self.num_hosts, self.setting, learning_rate)

    def asdict(self) -> dict:
        """Returns what a record says about it."""
        return {**self._asdict(), "setting": self.setting._asdict()}


def read_kept(file: pathlib.Path, asked: Mapping) -> dict | None:
    """Reads a record if there is one; raises unless it is of what is asked for."""
    if not file.exists():
        return None
    record = parse_json(file.read_text(encoding="utf-8"))
    changed = [
        f"{name}={record.get(name)!r}, not {value!r}"
        for name, value in json.loads(json.dumps(asked)).items()
        if record.get(name) != value
    ]
    if changed:
        raise ValueError(
            f"{file} must be of what is asked for, but has {'; '.join(changed)}; "
            "delete it, or use another --out"
        )
    return record


def read_all(out: pathlib.Path, pattern: str) -> list[dict]:
    """Reads all records of a kind in a directory, in the order of their names."""
    files = sorted(out.glob(pattern))
    return [parse_json(file.read_text(encoding="utf-8")) for file in files]


def write(file: pathlib.Path, record: Mapping) -> None:
    """Writes a record at once, so that none is ever cut off."""
    new = file.with_suffix(".new")
    new.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    os.replace(new, file)
