"""The README is short, and what it links to and lists is all there."""

import pathlib
import re

import pytest

import olsgd_jax

README = pathlib.Path(__file__).parent.parent / "README.md"
TEXT = README.read_text(encoding="utf-8")


def test_it_is_short():
    assert len(TEXT.splitlines()) <= 160


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\]\(([^)#]+)\)", TEXT))))
def test_a_link_to_a_file_leads_there(target):
    assert target.startswith("https://") or (README.parent / target).exists()


def test_every_strategy_has_its_row():
    rows = set(re.findall(r"^\| `(\w+)\(", TEXT, re.MULTILINE))
    assert rows == olsgd_jax.STRATEGIES.keys()
