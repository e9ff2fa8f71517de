"""Imports flow downwards, one place talks to the network, public names explain."""

import ast
import doctest
import inspect
import pathlib
import re

import jax
import pytest

import olsgd_jax
import olsgd_jax.delay
import olsgd_jax.overlap
import olsgd_jax.theory

ROOT = pathlib.Path(olsgd_jax.__file__).parent
# In the order in which data flows. A module imports only from lines above its own.
LAYERS = """
types
checks tree_checks mesh_checks files
loss_checks optimizer_step
optimizer_checks
who_is_where roll_call last_words
distributed agreement
command_line
preemption
checkpoints.flat checkpoints.seal checkpoints.keep checkpoints.writer checkpoints.due
checkpoints.packs
checkpoints.checkpoint
checkpoints.directory
checkpoints
config_checks
config
workers
mesh
placement
regroup
models.mlp models.resnet models.transformer
models
task
data.dataset data.array_cache data.decode data.images data.partition data.streams
data.cifar10 data.partitions data.batches
data.datasets
pieces
strategies.base
strategies.anchor strategies.velocity strategies.low_rank
strategies.sync_sgd strategies.local_sgd strategies.easgd strategies.cocod_sgd
strategies.slowmo strategies.overlap_local_sgd strategies.powersgd
strategies
presence
model_state
local
absence state
round_parts
round
payload
drivers.tiles drivers.arrivals
drivers.convolutions drivers.exchange drivers.forms drivers.gathered drivers.parcels
drivers.fused
drivers.parcel_programs
drivers.fragments
distribute
drivers.host
drivers.platforms drivers.step_checks
drivers.make_round drivers.step
overlap.shapes overlap.gpus
overlap.schedule overlap.targets
overlap.branches overlap.flops overlap.groups
overlap.work
overlap.carried
overlap.spans
overlap.collectives
overlap.advice
overlap.report
overlap.workload
overlap
theory.limits theory.mixing theory.bound
theory
delay.network delay.compute delay.times
delay.chance delay.setting
delay.slowest delay.simulation delay.hiding
delay.expected
delay
consensus one_model
evaluate
provenance
build.memory build.optimizer build.strategy build.task
build.parts
build
describe
record header
rows
records
restart
resize
resume
divergence
rounds rollback
stops
overlap.measure overlap.cost
overlap.__main__
planner
bench.turns bench.link bench.request bench.sending
bench.result bench.work
bench.compare
bench.measure
bench.show
bench.__main__
trainer
"""


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
    name: level
    for level, line in enumerate(LAYERS.split("\n"))
    for name in line.split()
}
DOCSTRING_ONLY = {"bench", "data", "drivers"}


def test_every_module_has_its_layer():
    assert MODULES.keys() - {""} - DOCSTRING_ONLY == LEVEL.keys()


@pytest.mark.parametrize("name", LEVEL)
def test_a_module_imports_only_from_above(name):
    for imported in imports_of(MODULES[name]):
        assert LEVEL[imported] < LEVEL[name], f"{name} imports {imported}"


@pytest.mark.parametrize("name", [x for x in LEVEL if x.startswith("strategies")])
def test_strategies_know_nothing_of_workers_rounds_or_flax(name):
    allowed = {"types", "checks", "pieces"}
    for imported in imports_of(MODULES[name]):
        assert imported in allowed or imported.startswith("strategies.")
    assert "flax" not in MODULES[name].read_text()


def test_one_function_talks_to_the_network_for_all_platforms_but_one():
    collective = re.compile(
        r"\b(pmean|psum|all_gather|all_to_all|psum_scatter|ppermute)\("
    )
    found = {
        name: calls
        for name, path in MODULES.items()
        if (calls := collective.findall(path.read_text()))
    }
    # A sum, and the exchange that devices make it of which cannot add up on their own.
    assert found == {"workers": ["psum"], "drivers.exchange": ["all_to_all"]}


def test_drivers_alone_compile_rounds():
    jits = {n for n, path in MODULES.items() if "donate_arg" in path.read_text()}
    assert jits == {"drivers.fused", "drivers.step"}


@pytest.mark.parametrize("path", MODULES.values(), ids=list(MODULES))
def test_files_are_short(path):
    assert len(path.read_text().splitlines()) <= 300


def public_objects():
    packages = (olsgd_jax, olsgd_jax.delay, olsgd_jax.overlap, olsgd_jax.theory)
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


def test_the_public_names_are_sorted():
    lines = [x for x in MODULES[""].read_text().splitlines() if x.startswith("from")]
    assert lines == sorted(lines)
