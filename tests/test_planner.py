"""What is planned follows from the compiled step and the model of time."""

import importlib.util
import json
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest

from experiments.plan import streaming
from olsgd_jax.aot import plan
from olsgd_jax.aot.step_cost import step_flops
from olsgd_jax.aot.targets import target
from olsgd_jax.aot.workloads import Workload
from olsgd_jax.timing import RingOrTree
from olsgd_jax.training import MLP

COMPILER = importlib.util.find_spec("jax_cuda13_plugin") is not None
needs_compiler = pytest.mark.skipif(
    not COMPILER, reason="jax_cuda13_plugin is not installed"
)
TPU_COMPILER = importlib.util.find_spec("libtpu") is not None
needs_tpu_compiler = pytest.mark.skipif(
    not TPU_COMPILER, reason="libtpu is not installed"
)

SMALL = Workload(
    MLP(256, num_classes=16, depth=2),
    jax.ShapeDtypeStruct((64, 128), jnp.float32),
    jax.ShapeDtypeStruct((64,), jnp.int32),
)
NUM_BYTES = 4 * (129 * 256 + 257 * 256 + 257 * 16)
# Twice a multiplication for every weight and example; three products for every layer,
# but nobody asks for the gradient of the inputs.
FLOPS = 2 * 64 * (2 * 128 * 256 + 3 * 256 * 256 + 3 * 256 * 16)
# 8 workers in a ring: 14 messages of an eighth each.
MEAN_SECONDS = 14 * (NUM_BYTES / 8 / 1e6 + 1e-3)


@pytest.fixture(scope="module")
def planned():
    return plan("h100", SMALL, bandwidth=1e6, latency=1e-3, step_seconds=0.1)


def of(planned, strategy, stream=False):
    [found] = [x for x in planned.expected if x[:2] == (strategy, stream)]
    return found


@needs_compiler
def test_the_mean_sets_the_sync_period(planned):
    assert planned.num_workers == 8
    assert planned.parameter_bytes == NUM_BYTES
    assert planned.mean_seconds == pytest.approx(MEAN_SECONDS)
    assert planned.hiding_period == -(-MEAN_SECONDS // 0.1)
    assert planned.step_flops is None


@needs_compiler
def test_every_strategy_has_its_time(planned):
    steps = 0.1 * planned.hiding_period
    assert of(planned, "overlap_local_sgd").time.utilisation == 1
    assert of(planned, "cocod_sgd").time.utilisation == 1
    blocking = of(planned, "local_sgd")
    assert blocking.time.seconds == pytest.approx(steps + MEAN_SECONDS)
    every_step = of(planned, "sync_sgd")
    assert every_step.bytes_per_round == planned.hiding_period * NUM_BYTES
    assert every_step.time.utilisation == pytest.approx(0.1 / (0.1 + MEAN_SECONDS))
    assert of(planned, "powersgd").time.seconds < every_step.time.seconds
    streamed = of(planned, "overlap_local_sgd", stream=True)
    assert streamed.bytes_per_round == NUM_BYTES


@needs_compiler
def test_a_given_sync_period_is_that_of_all():
    short = plan("h100", SMALL, bandwidth=1e6, sync_period=2, step_seconds=0.01)
    assert {x.sync_period for x in short.expected} == {2}
    assert short.hiding_period > 2
    assert of(short, "overlap_local_sgd").time.utilisation < 1


@needs_compiler
@pytest.mark.parametrize(("data", "fsdp"), [(1, 1), (4, 1)])
def test_a_step_takes_its_flops_over_those_of_the_device(data, fsdp):
    found = plan("h100", SMALL, bandwidth=1e6, utilisation=0.5, data=data, fsdp=fsdp)
    assert found.num_workers == 8 // data
    assert found.step_flops == pytest.approx(FLOPS / data)
    assert found.step_seconds == pytest.approx(FLOPS / data / (0.5 * 989e12))


@needs_tpu_compiler
def test_the_tpu_compiler_counts_the_same_flops():
    # It counts the optimizer as well.
    assert FLOPS <= step_flops(SMALL, target("v5e")) <= 1.2 * FLOPS


@needs_compiler
def test_stragglers_cost_a_blocking_strategy_more():
    options = {"bandwidth": 1e9, "sync_period": 8, "step_seconds": 0.1}
    found = plan("h100", SMALL, stragglers=0.5, **options)
    blocking, delayed = (of(found, x).time for x in ("local_sgd", "overlap_local_sgd"))
    assert 8 * 0.15 < delayed.seconds < blocking.seconds


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": "vgg"}, "model must be one of mlp, resnet18, transformer"),
        ({"utilisation": 0}, "utilisation must be in"),
        ({"sync_period": 0}, "sync_period must be at least 1"),
        ({"target": "p100"}, "target must be one of a100"),
    ],
)
def test_what_cannot_be_planned_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        plan(**{"target": "h100", "bandwidth": 1e9, **options})


@needs_compiler
def test_the_command_prints_the_plan():
    command = [sys.executable, "-m", "experiments.plan", "--target", "h100:1x2x8"]
    command += ["--model", "mlp", "--bandwidth", "10gbit", "--step-seconds", "0.01"]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}

    def run(*options):
        done = subprocess.run(
            [*command, *options], capture_output=True, text=True, env=environment
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    found = json.loads(run("--json"))
    # 75.6 MB along a ring of 16 at 1.25 GB/s, 15 / 8 times: 113 ms, or 12 steps.
    assert found["hiding_period"] == 12
    assert "smallest sync period that hides it is 12" in " ".join(run().split())


@needs_compiler
def test_steps_that_are_too_short_to_stream_are_told_what_to_do():
    # A ring of 8: 14 messages of 1 ms each, however small, beside steps of 2 ms.
    short = plan("h100", SMALL, bandwidth=1e9, latency=1e-3, step_seconds=2e-3)
    network = RingOrTree(bandwidth=1e9, latency=1e-3)
    streamed = of(short, "overlap_local_sgd", stream=True)
    share = NUM_BYTES / streamed.sync_period
    assert short.fragment_seconds == network.seconds(share, 8) > 2e-3
    assert streamed.time.utilisation == pytest.approx(2e-3 / short.fragment_seconds)
    said = streaming(short)
    assert f"fragment that goes with it {1e3 * short.fragment_seconds:.2f} ms" in said
    assert f"compute {streamed.time.utilisation:.0%} of the time" in said
    assert "make_round without stream, which sends once a round (100%)" in said


@needs_compiler
def test_steps_that_are_long_enough_are_told_nothing():
    long = plan("h100", SMALL, bandwidth=1e9, latency=1e-4, step_seconds=0.1)
    assert of(long, "overlap_local_sgd", stream=True).time.utilisation == 1
    assert streaming(long) == ""
