"""What README and docs show overlaps on hardware that is not here."""

import pathlib
import re

import jax
import pytest

import olsgd_jax
from experiments.memory import models_kept
from olsgd_jax.aot import target
from olsgd_jax.aot.targets import TARGETS
from olsgd_jax.aot.workloads import placed
from olsgd_jax.overlap import assert_overlapped

ROOT = pathlib.Path(__file__).parents[1]
README, ADOPT = (
    (ROOT / name).read_text(encoding="utf-8")
    for name in ("README.md", "docs/howto/adopt.md")
)


def examples_in(text):
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


LINEN = next(x for x in examples_in(README) if "TrainState" in x)
NNX, ACCUMULATED, *_ = examples_in(ADOPT)


def run(example, monkeypatch):
    """Runs an example as users do, and gives its names and the step it compiles."""
    names, given, compile_step = {}, [], olsgd_jax.overlap_jit

    def overlap_jit(train_step, mesh):
        given.append(train_step)
        return compile_step(train_step, mesh)

    with monkeypatch.context() as patch:
        patch.setattr(olsgd_jax, "overlap_jit", overlap_jit)
        exec(compile(example, "example", "exec"), names)
    [train_step] = given
    return names, train_step


CASES = [("linen", LINEN, name) for name in TARGETS]
CASES += [("nnx", NNX, name) for name in TARGETS]
CASES += [("accumulated", ACCUMULATED, name) for name in TARGETS]


@pytest.mark.parametrize(
    ("example", "name"),
    [x[1:] for x in CASES],
    ids=[f"{kind}-{name}" for kind, _, name in CASES],
)
def test_the_step_of_an_example_overlaps_as_printed(example, name, monkeypatch):
    pytest.importorskip("libtpu" if name[0] in "v7" else "jax_cuda13_plugin")
    mesh = target(name)
    example = example.replace("jax.device_count()", str(mesh.size))
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        names, train_step = run(example, monkeypatch)
        state, batch = jax.eval_shape(lambda x: x, (names["state"], names["batch"]))
        step = olsgd_jax.overlap_jit(train_step, mesh)
        compiled = step.lower(placed(state, mesh), placed(batch, mesh)).compile()
    assert_overlapped(compiled, at_least=0.99)


def test_the_table_of_strategies_counts_the_models_that_are_kept():
    row = r"^\| `?(\w+)[(:].*\| (\d) / (\d)[^|]*\|$"
    rows = re.findall(row, README, re.MULTILINE)
    stated = {name: (int(step), int(a_round)) for name, step, a_round in rows}
    kept = {
        name: (int(step + 0.01), int(a_round))
        for name, (step, a_round) in models_kept().items()
    }
    assert stated == kept
