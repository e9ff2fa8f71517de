"""Imports flow downwards, one place talks to the network, public names explain."""

import ast
import doctest
import graphlib
import inspect
import pathlib
import re

import jax
import pytest

import olsgd_jax
import olsgd_jax.aot
import olsgd_jax.overlap
import olsgd_jax.theory
import olsgd_jax.timing

ROOT = pathlib.Path(olsgd_jax.__file__).parent
# In the order in which data flows. A room imports only from lines above its own.
LAYERS = """
types
_checks _tree_checks _vectors
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
    # A sum, and the exchange that devices make it of which cannot add up on their own.
    assert found == {"reductions.exact": ["psum", "all_to_all"]}


def test_drivers_alone_compile_rounds():
    jits = {n for n, path in MODULES.items() if "donate_arg" in path.read_text()}
    assert jits == {"drivers.fused", "drivers.step"}


@pytest.mark.parametrize("path", MODULES.values(), ids=list(MODULES))
def test_files_are_short(path):
    assert len(path.read_text().splitlines()) <= 300


def public_objects():
    packages = (
        olsgd_jax,
        olsgd_jax.aot,
        olsgd_jax.overlap,
        olsgd_jax.theory,
        olsgd_jax.timing,
    )
    for module in packages:
        for name, thing in vars(module).items():
            if not name.startswith("_") and not inspect.ismodule(thing):
                yield name, thing


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
