"""What the README shows, runs."""

import pathlib
import re

import jax
import pytest

import olsgd_jax

README = pathlib.Path(__file__).parent.parent / "README.md"
TEXT = README.read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


def found(pattern):
    return sorted(set(re.findall(pattern, TEXT)))


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_runs_as_it_stands(example, capsys):
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        exec(compile(example, README, "exec"), {})
    # What they print: a loss that starts at 5, and a fraction that is 0.
    assert float(capsys.readouterr().out) < 0.1


def test_there_are_three_examples():
    assert len(EXAMPLES) == 3


@pytest.mark.parametrize("target", found(r"\]\(([^)#]+)\)"))
def test_a_link_to_a_file_leads_there(target):
    assert target.startswith("https://") or (README.parent / target).exists()


def test_every_strategy_has_its_row():
    rows = set(re.findall(r"^\| `(\w+)\(", TEXT, re.MULTILINE))
    assert rows == olsgd_jax.STRATEGIES.keys()


@pytest.mark.parametrize("module", found(r"-m (experiments\.\w+)"))
def test_a_command_has_its_script(module):
    assert (README.parent / module.replace(".", "/")).with_suffix(".py").exists()
