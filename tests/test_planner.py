"""What is planned follows from the compiled step and the model of time."""

import importlib.util
import json
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest

from experiments.plan import reducing, streaming
from olsgd_jax import REDUCTIONS, make_round, make_worker_round, payload_bytes
from olsgd_jax.aot import SENDING, plan
from olsgd_jax.aot.step_cost import step_flops
from olsgd_jax.aot.targets import target
from olsgd_jax.aot.workloads import OPTIMIZER, Workload, arguments
from olsgd_jax.overlap import overlap_report
from olsgd_jax.timing import RingOrTree
from olsgd_jax.training import MLP, named_strategy

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
    found, *_ = [x for x in planned.expected if x[:2] == (strategy, stream)]
    return found


def reduced(sync_period=None, latency=1e-3, step_seconds=0.02, names=SENDING):
    found = plan(
        "h100",
        SMALL,
        bandwidth=1e6,
        latency=latency,
        sync_period=sync_period,
        step_seconds=step_seconds,
        reductions=names,
    )
    return found, {x.reduction: x for x in found.reductions}


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
    [low_rank] = [x for x in planned.expected if x.reduction == "low_rank"]
    assert low_rank.strategy == "sync_sgd"
    assert low_rank.bytes_per_round < every_step.bytes_per_round
    assert low_rank.time.seconds < every_step.time.seconds
    streamed = of(planned, "overlap_local_sgd", stream=True)
    assert streamed.bytes_per_round == NUM_BYTES


@needs_compiler
def test_a_given_sync_period_is_that_of_all():
    short = plan("h100", SMALL, bandwidth=1e6, sync_period=2, step_seconds=0.01)
    assert {x.sync_period for x in short.expected} == {2}
    assert short.hiding_period > 2
    assert of(short, "overlap_local_sgd").time.utilisation < 1


@needs_compiler
def test_a_compressed_mean_is_hidden_if_a_step_covers_its_exchange():
    _, found = reduced(sync_period=8)
    # 8 workers have 7/8 of a fragment for others, two steps for it, and send 2 bytes
    # for each of the numbers: 7/8 · 2 n / τ + 1 ms in 20 ms.
    numbers = NUM_BYTES / 4
    needed = 7 / 8 * 2 * (2 * numbers) / 1e6 / 0.019
    assert found["bfloat16"].bytes_per_round == pytest.approx(2 * numbers, rel=1e-3)
    assert found["bfloat16"].hiding_period == 2 * -(-needed // 2)
    exchange = 7 / 8 * 2 * found["bfloat16"].bytes_per_round / 8 / 1e6 + 1e-3
    assert found["bfloat16"].time.seconds == pytest.approx(8 * exchange)
    assert found["exact"].hiding_period == -(-MEAN_SECONDS // 0.02)
    assert found["exact"].bytes_per_round == NUM_BYTES


@needs_compiler
@pytest.mark.parametrize("sync_period", [1, 2, 3, 4, 7, 12, 13, 30])
def test_what_is_said_to_be_hidden_is(sync_period):
    planned, found = reduced(sync_period)
    for one in found.values():
        assert one.is_hidden == (one.time.utilisation > 1 - 1e-9)
        assert one.is_hidden == (sync_period >= one.hiding_period)
    hidden = [x for x in found.values() if x.is_hidden]
    best = max(hidden, key=lambda x: x.bytes_per_round, default=None)
    assert planned.most_bits == best
    said = reducing(planned)
    if best is None:
        smallest = min(x.hiding_period for x in found.values())
        assert f"the smallest that hides one is {smallest}." in said
    else:
        assert f"{best.reduction} sends the most bits" in said


@needs_tpu_compiler
@pytest.mark.parametrize("sync_period", [2, 3, 5])
def test_what_is_said_to_be_hidden_on_a_tpu_is(sync_period):
    options = {"bandwidth": 1e6, "latency": 1e-3, "step_seconds": 0.02}
    names = "int4", "low_rank"
    found = plan("v5e", SMALL, sync_period=sync_period, reductions=names, **options)
    for one in found.reductions:
        assert one.hiding_period % 2 == 0
        assert one.is_hidden == (one.time.utilisation > 1 - 1e-9)
        assert one.is_hidden == (sync_period >= one.hiding_period)
    # Two means in two exchanges each need four steps.
    assert found.reductions[1].hiding_period >= 4


@needs_compiler
def test_fewer_bits_need_no_longer_rounds():
    _, found = reduced()
    names = "exact", "bfloat16", "int8", "int4", "int2", "top_k"
    periods = [found[name].hiding_period for name in names]
    assert periods == sorted(periods, reverse=True)
    assert periods[0] > periods[1] > periods[2] > periods[3]


@needs_compiler
def test_exchanges_of_more_latency_than_a_step_are_never_hidden():
    planned, found = reduced(2, latency=0.021, names=("int8",))
    assert found["int8"].hiding_period is None
    assert not found["int8"].is_hidden
    assert planned.most_bits is None
    assert "No sync period hides a mean" in reducing(planned)


@needs_compiler
@pytest.mark.parametrize("name", SENDING)
def test_the_planned_bytes_are_those_of_the_round(name):
    [one] = reduced(4, names=(name,))[0].reductions
    reduction, mesh = REDUCTIONS[name](), target("h100")
    # Which takes all reductions.
    strategy, _ = named_strategy("cocod_sgd", num_workers=8)
    worker_round = make_worker_round(
        SMALL.task.loss, OPTIMIZER, strategy, reduction=reduction
    )
    shapes = arguments(SMALL, mesh, strategy, 4, reduction)
    assert one.bytes_per_round == payload_bytes(worker_round, *shapes, num_workers=8)


@needs_compiler
@pytest.mark.parametrize("sync_period", [2, 5])
@pytest.mark.parametrize("name", ["exact", "bfloat16", "int4"])
def test_the_compiled_round_sends_the_planned_bytes(name, sync_period):
    [one] = reduced(sync_period, names=(name,))[0].reductions
    reduction, mesh = REDUCTIONS[name](), target("h100")
    strategy, _ = named_strategy("overlap_local_sgd", num_workers=8)
    run = make_round(
        SMALL.task.loss,
        OPTIMIZER,
        strategy,
        sync_period=sync_period,
        mesh=mesh,
        reduction=reduction,
    )
    shapes = arguments(SMALL, mesh, strategy, sync_period, reduction)
    sent = overlap_report(run.lower(*shapes).compile()).mean_bytes
    # Every shard of an exchange is filled up to whole tiles, in fewer bits.
    filling = 8 * sync_period / 2 * 4 * 8 * 128 * reduction.is_compressed
    assert one.bytes_per_round <= sent <= one.bytes_per_round + filling


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
        (
            {"reductions": ["int8", "int9"]},
            "reductions must be .*; did you mean 'int8'",
        ),
        ({"reductions": ["send_nothing"]}, "reductions must be one of exact, bfloat16"),
        ({"reductions": []}, "reductions must name at least one, got none; leave it"),
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
    options = "--sync-period", "6", "--reductions", "exact", "bfloat16", "int8"
    assert "6, bfloat16 sends the most bits" in " ".join(run(*options).split())
    found = json.loads(run("--json", *options))["reductions"]
    assert [x["reduction"] for x in found] == ["exact", "bfloat16", "int8"]
    assert [x["time"]["exposed"] > 1e-9 for x in found] == [True, False, False]


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
