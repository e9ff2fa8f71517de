"""Imports flow downwards, one place talks to the network, public names explain."""

import ast
import doctest
import graphlib
import importlib
import pathlib
import re
import sys

import jax
import pytest

import olsgd_jax

ROOT = pathlib.Path(olsgd_jax.__file__).parent
# In the order in which data flows. A room imports only from lines above its own.
LAYERS = """
types
_checks _extras _tree_checks _vectors
strategies
workers
reductions
round
drivers
distribute one_model overlap timing theory
training
aot
bench
"""
# These need an extra, and all above them needs none.
HARNESS = {"training", "aot", "bench"}
# Commands may use everything, wherever they are.
COMMANDS = {"overlap.__main__", "bench.__main__"}


def name_of(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(path):
    """The library's modules that a file imports, as names below olsgd_jax."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path} imports relatively"
            names = [node.module]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            if name.startswith("olsgd_jax."):
                yield name.removeprefix("olsgd_jax.")


MODULES = {name_of(path): path for path in ROOT.rglob("*.py")}
LEVEL = {
    room: level
    for level, line in enumerate(LAYERS.split("\n"))
    for room in line.split()
}


def room_of(name):
    return name.split(".")[0]


def test_every_room_has_its_layer():
    assert {room_of(name) for name in MODULES} - {""} == LEVEL.keys()


@pytest.mark.parametrize("name", sorted(MODULES.keys() - {""} - COMMANDS))
def test_a_module_imports_only_from_its_room_and_those_above(name):
    room = room_of(name)
    for imported in map(room_of, imports_of(MODULES[name])):
        is_above = LEVEL[imported] < LEVEL[room]
        assert imported == room or is_above, f"{name} imports {imported}"


def test_no_module_waits_for_one_that_waits_for_it():
    graph = {
        name: {x for x in imports_of(path) if x in MODULES}
        for name, path in MODULES.items()
        if name
    }
    tuple(graphlib.TopologicalSorter(graph).static_order())


@pytest.mark.parametrize("name", [x for x in MODULES if room_of(x) == "strategies"])
def test_strategies_know_nothing_of_workers_rounds_or_flax(name):
    allowed = {"types", "_checks", "_vectors"}
    for imported in imports_of(MODULES[name]):
        assert imported in allowed or imported.startswith("strategies.")
    assert "flax" not in MODULES[name].read_text()


def test_reductions_alone_talk_to_the_network():
    collective = re.compile(
        r"\b(pmean|psum|all_gather|all_to_all|psum_scatter|ppermute)\("
    )
    found = {
        name: calls
        for name, path in MODULES.items()
        if (calls := collective.findall(path.read_text()))
    }
    # A sum, or two exchanges; lanes of one slot add up instead of exchanging.
    assert found == {
        "reductions.exact": ["psum"],
        "reductions.compressed": ["psum", "psum", "all_gather"],
        "reductions.shards": ["all_to_all"],
    }


@pytest.mark.parametrize("name", [x for x in MODULES if room_of(x) not in HARNESS])
def test_the_core_imports_four_packages_and_the_standard_library(name):
    if name in COMMANDS:
        return
    allowed = {"jax", "jaxtyping", "numpy", "optax", "olsgd_jax"}
    for node in ast.walk(ast.parse(MODULES[name].read_text())):
        names = []
        if isinstance(node, ast.ImportFrom):
            names = [node.module]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for package in {x.split(".")[0] for x in names} - sys.stdlib_module_names:
            assert package in allowed, f"{name} imports {package}"


EXPERIMENTS = sorted((ROOT.parent / "experiments").rglob("*.py"))


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_experiments_import_public_names_alone(path):
    public = public_names()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module.startswith("olsgd_jax"):
            hidden = {x.name for x in node.names} - set(public.get(node.module, ()))
            assert not hidden, f"{node.module} has no public {', '.join(hidden)}"
        elif isinstance(node, ast.Import):
            deep = [x.name for x in node.names if x.name.startswith("olsgd_jax.")]
            assert not deep, f"{deep} instead of names from a room"


def test_a_public_name_has_one_home():
    homes = [name for names in public_names().values() for name in names]
    assert len(set(homes)) == len(homes)


def test_nothing_uses_what_is_private_to_jax():
    experiments = (ROOT.parent / "experiments").rglob("*.py")
    paths = [*MODULES.values(), *experiments]
    assert [str(x) for x in paths if "jax._src" in x.read_text()] == []


def test_drivers_alone_compile_rounds():
    jits = {n for n, path in MODULES.items() if "donate_arg" in path.read_text()}
    assert jits == {"drivers.fused", "drivers.step"}


@pytest.mark.parametrize("path", MODULES.values(), ids=list(MODULES))
def test_files_are_short(path):
    assert len(path.read_text().splitlines()) <= 300


def public_names():
    """The names that each module lists in its `__all__`, of those that have one."""
    rooms = {f"olsgd_jax.{room}".rstrip(".") for room in ("", *LEVEL)}
    modules = {room: importlib.import_module(room) for room in rooms}
    return {room: x.__all__ for room, x in modules.items() if hasattr(x, "__all__")}


def public_objects():
    for room, names in sorted(public_names().items()):
        for name in names if room != "olsgd_jax.types" else ():
            yield name, getattr(sys.modules[room], name)


@pytest.mark.parametrize(("name", "thing"), list(public_objects()))
def test_every_public_function_and_class_shows_how_it_is_used(name, thing):
    if not callable(thing):  # a constant; its meaning stands below it
        return
    example = doctest.DocTestFinder(recurse=False).find(thing, name, globs={})
    assert example, f"{name} has no docstring"
    assert example[0].examples, f"{name} has no example"
    # Examples are for users, whose jax computes in float32 and promotes as usual,
    # and who have imported nothing yet.
    runner = doctest.DocTestRunner(
        optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE, verbose=False
    )
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        runner.run(example[0])
    assert runner.failures == 0
