"""docs/errors.md says what is really said, and leaves out nothing that can be."""

import ast
import pathlib
import re
from typing import NamedTuple

import jaxtyping
import pytest

from tests.mistakes import api, cli, kept, options, processes, records, said_by

ROOT = pathlib.Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
MISTAKES = {
    **api.MISTAKES,
    **cli.MISTAKES,
    **options.MISTAKES,
    **records.MISTAKES,
    **kept.CHECKPOINTS,
    **kept.FILES,
    **processes.NETWORK,
    **processes.COMPILERS,
}
HERE = "test_errors"


class Row(NamedTuple):
    mistake: str
    message: str
    test: str


def rows():
    for line in TEXT.splitlines():
        if line.startswith("| ") and not line.startswith(("| what ", "| --- ")):
            mistake, message, test = line.strip("| ").split(" | ")
            yield Row(mistake, message.strip("`"), test.strip("`"))


ROWS = list(rows())
OTHERS = [row for row in ROWS if row.test != HERE]
# What no user can cause, or what is inside of another message.
INTERNAL = {
    "experiments/robustness/child_run.py",
    "experiments/fuzz.py",
    "experiments/processes/host_processes.py",
    "experiments/links/hosts.py",
    "experiments/killed.py",
    "experiments/robustness/same_run.py",
    "experiments/paper/relative_time.py",
    "olsgd_jax/training/data/array_cache.py",
}


@pytest.fixture(autouse=True)
def unchecked(monkeypatch):
    """Turns off the tests' check of annotations, which would refuse kinds first."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


@pytest.mark.parametrize(
    "row", [row for row in ROWS if row.test == HERE], ids=lambda row: row.mistake
)
def test_a_mistake_gets_its_message(row, tmp_path):
    pattern = ".+".join(map(re.escape, row.message.split("…")))
    said = said_by(MISTAKES[row.mistake], tmp_path)
    assert re.fullmatch(pattern, said), said


def test_every_mistake_has_its_row():
    assert {row.mistake for row in ROWS if row.test == HERE} == MISTAKES.keys()
    assert len({row.mistake for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("row", OTHERS, ids=lambda row: row.mistake)
def test_a_message_stands_in_the_test_that_is_named(row):
    file, _, name = row.test.partition("::")
    text = (ROOT / file).read_text(encoding="utf-8")
    assert f"def {name}(" in text
    source = text.replace("\\", "")
    parts = [x.strip() for part in row.message.split("…") for x in part.split(";")]
    words = [x.split() for x in parts]
    runs = [" ".join(x[i : i + 3]) for x in words for i in range(len(x) - 2)]
    assert any(run in source for run in runs), runs


def messages():
    """Gives the longest fixed part of every message that is raised."""
    for directory in ("olsgd_jax", "experiments"):
        for path in sorted((ROOT / directory).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                is_call = isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)
                if is_call and node.exc.args and name not in INTERNAL:
                    text = node.exc.args[0]
                    values = getattr(text, "values", [text])
                    fixed = [x.value for x in values if isinstance(x, ast.Constant)]
                    longest = max(map(str, fixed), key=len, default="")
                    yield f"{name}:{node.lineno}", longest.strip(" :;,.(){}[]'\n")


def test_every_message_that_is_raised_has_its_row():
    missing = [f"{place}: {text}" for place, text in messages() if text not in TEXT]
    assert missing == []
