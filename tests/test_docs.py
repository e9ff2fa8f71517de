"""What the documentation shows, runs; what it names, exists."""

import pathlib
import re
import tomllib

import jax
import pytest

import olsgd_jax
from tests.test_layers import LAYERS

ROOT = pathlib.Path(__file__).parents[1]
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in [
        *ROOT.glob("*.md"),
        *sorted((ROOT / "docs").rglob("*.md")),
    ]
}
EXAMPLES = [
    (page, example)
    for page, text in PAGES.items()
    for example in re.findall(r"```python\n(.*?)```", text, re.DOTALL)
]
# Workers with AdamW each make steps of one size, so they do not meet in the middle of
# their targets, which is 2 away as they begin.
LIMITS = {"docs/howto/choose.md": 0.5}


def found(pattern):
    """Gives (page, match) for every match of the pattern on a page."""
    return [
        (page, match)
        for page, text in PAGES.items()
        for match in sorted(set(re.findall(pattern, text)))
    ]


@pytest.mark.parametrize(("page", "example"), EXAMPLES)
def test_an_example_runs_and_prints_what_the_page_says(page, example, capsys):
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        exec(compile(example, page, "exec"), {})
    printed = capsys.readouterr().out
    [stated] = re.findall(r"^print\(.*\)(?:  # ([\d.]+))?", example, re.MULTILINE)
    if stated:
        assert float(printed) == float(stated)
    else:  # a loss or a distance, which begins near 1 or above
        assert abs(float(printed)) < LIMITS.get(page, 0.1)


def test_every_kind_of_page_has_its_examples():
    counts = {page: 0 for page, _ in EXAMPLES}
    for page, _ in EXAMPLES:
        counts[page] += 1
    assert counts == {
        "README.md": 1,
        "docs/quickstart.md": 2,
        "docs/concepts/theory.md": 3,
        "docs/howto/adopt.md": 6,
        "docs/howto/choose.md": 1,
        "docs/howto/reduction.md": 2,
        "docs/howto/strategy.md": 1,
    }


@pytest.mark.parametrize(
    ("page", "module"), found(r"-m ((?:experiments|olsgd_jax)(?:\.\w+)+)")
)
def test_a_command_has_its_script(page, module):
    path = ROOT / module.replace(".", "/")
    assert path.with_suffix(".py").exists() or (path / "__main__.py").exists()


@pytest.mark.parametrize(
    ("page", "file"),
    found(r"[` ]((?:tests|experiments|olsgd_jax|results)/[\w/]+\.\w+)"),
)
def test_a_file_that_is_named_exists(page, file):
    assert (ROOT / file).exists()


@pytest.mark.parametrize(
    "command", sorted({x for _, x in found(r"make (\w[\w-]*)\b`")})
)
def test_make_knows_the_commands_that_are_named(command):
    rules = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(rf"^{command}:", rules, re.MULTILINE)


def test_the_table_of_the_layers_is_what_is_tested():
    _, table, _ = re.split(r"<!-- /?layers -->", PAGES["CONTRIBUTING.md"])
    rows = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    assert " ".join(rows).replace("`", "").split() == LAYERS.split()


def test_every_name_of_the_core_is_in_the_reference():
    rooms = "core", "strategies", "reductions"
    pages = "".join(PAGES[f"docs/reference/{room}.md"] for room in rooms)
    pattern = r"^\.\. auto(?:function|class|data):: (?:\S+\.)?(\w+)$"
    named = set(re.findall(pattern, pages, re.MULTILINE))
    # Builders are added from their registries as the site is built.
    built = olsgd_jax.STRATEGIES.keys() | olsgd_jax.REDUCTIONS.keys()
    assert named == set(olsgd_jax.__all__) - built


def test_every_reduction_has_its_row():
    page = PAGES["docs/reference/reductions.md"]
    assert re.findall(r"^\| `(\w+)\(", page, re.M) == list(olsgd_jax.REDUCTIONS)


def test_the_version_is_the_same_everywhere():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    [cited] = re.findall(r"^version: (.*)", (ROOT / "CITATION.cff").read_text(), re.M)
    newest = re.search(r"^## (\d\S*)", PAGES["CHANGELOG.md"], re.MULTILINE)
    assert cited == newest[1] == project["version"]
