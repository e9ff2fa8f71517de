"""The benchmark: real rounds in one process and in two, and what it says of them."""

import gzip
import json
import os
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.launch import end_all, free_coordinator, start
from olsgd_jax import (
    bfloat16,
    exact,
    int2,
    int4,
    int8,
    low_rank,
    make_worker_round,
    payload_bytes,
    random_mask,
    top_k,
    worker_mesh,
)
from olsgd_jax.aot.workloads import OPTIMIZER, Workload, arguments
from olsgd_jax.bench.compare import Case, compare
from olsgd_jax.bench.link import link_of
from olsgd_jax.bench.measure import Watch, measure
from olsgd_jax.bench.request import ALL, SMALL, Request
from olsgd_jax.bench.sending import Sending, means_alone, sending
from olsgd_jax.bench.show import milliseconds
from olsgd_jax.bench.work import make_batches, make_rounds
from olsgd_jax.timing import Ring, RingOrTree
from olsgd_jax.training import MLP
from olsgd_jax.training.components.strategy import named_strategy

ROOT = pathlib.Path(__file__).parents[1]
COMMAND = [sys.executable, "-m", "olsgd_jax.bench"]
STRATEGIES = ("sync_sgd", "local_sgd", "overlap_local_sgd:stream")
TINY = ("--batch-size", "2", "--repetitions", "3")
TILE = 8 * 128
NUM_BYTES = 4 * (769 * 384 + 3 * 385 * 384 + 385 * 10)


@pytest.fixture(autouse=True, scope="module")
def environment():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        patch.setenv("JAX_PLATFORMS", "cpu")
        patch.setenv("XLA_FLAGS", "--xla_cpu_parallel_codegen_split_count=1")
        yield


@pytest.fixture(scope="module")
def in_one_process(tmp_path_factory):
    """What it writes in one process: JSON, table, profile."""
    trace = tmp_path_factory.mktemp("bench") / "trace"
    options = ["--cpu-devices", "4", "--json", "-", "--profile", trace, *TINY]
    command = [*COMMAND, *options, "--strategies", *STRATEGIES]
    done = subprocess.run(map(str, command), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr, trace


def check_sense(found):
    """Checks what has to be true of any result."""
    assert found["parameter_bytes"] == NUM_BYTES
    link = RingOrTree(found["bandwidth"], found["latency"])
    num_workers, tau = found["num_workers"], found["sync_period"]
    model_mean, step = found["model_mean"]["median"], found["step"]["median"]
    assert link.seconds(NUM_BYTES, num_workers) == pytest.approx(model_mean)
    by_hand = {
        "sync_sgd": tau * (step + model_mean),
        "local_sgd": tau * step + model_mean,
        "overlap_local_sgd": max(tau * step, model_mean),
    }
    for one in found["strategies"]:
        for name in ("means", "with_mean", "without_mean"):
            times = one[name]
            assert 0 < times["first"] <= times["median"] <= times["third"]
        exposed, means = one["exposed"]["median"], one["means"]["median"]
        assert one["hidden"] == pytest.approx(1 - exposed / means)
        assert one["ratio"] == pytest.approx(
            one["with_mean"]["median"] / one["predicted"]
        )
        # A fragment may be filled up to a whole tile.
        most = one["means_per_round"] * (NUM_BYTES + 4 * TILE)
        assert most >= one["bytes_per_round"]
        if one["strategy"] in by_hand:
            assert one["predicted"] == pytest.approx(by_hand[one["strategy"]])


def test_it_measures_every_strategy(in_one_process):
    found, _, _ = in_one_process
    check_sense(found)
    devices = found["num_devices"], found["num_processes"], found["num_workers"]
    assert devices == (4, 1, 4)
    assert found["jax_version"] == jax.__version__
    assert found["batch_size"] == 2
    assert "that hides the mean" in found["sync_period_reason"]
    sync, local, streamed = found["strategies"]
    assert [x["strategy"] for x in (sync, local, streamed)] == list(STRATEGIES)
    assert sync["bytes_per_round"] == found["sync_period"] * NUM_BYTES
    assert local["bytes_per_round"] == NUM_BYTES
    forms = [(x["driver"], x["form"]) for x in (sync, local, streamed)]
    expected = [("fused", "gradients"), ("fused", "tree"), ("fused", "fragments")]
    assert forms == expected


def test_the_table_says_what_the_json_says(in_one_process):
    found, written, _ = in_one_process
    text = " ".join(written.split())
    for one in found["strategies"]:
        exposed = [milliseconds(one["exposed"][x]) for x in ("first", "third")]
        row = [
            one["strategy"],
            f"{one['driver']}, {one['form']}",
            f"{one['bytes_per_round'] / 1e6:,.1f}",
            *(
                milliseconds(one[name]["median"])
                for name in ("means", "with_mean", "without_mean", "exposed")
            ),
            f"({exposed[0]} to {exposed[1]})",
            f"{one['hidden']:.0%}",
            milliseconds(one["predicted"]),
            f"{one['ratio']:.2f}",
        ]
        assert " ".join(row) in text
    assert "4 x cpu in 1 process" in text
    assert f"A local step takes {milliseconds(found['step']['median'])}" in text
    assert f"Sync period {found['sync_period']}" in text


def test_a_profile_shows_the_rounds_of_all_strategies(in_one_process):
    _, _, trace = in_one_process
    [file] = trace.rglob("*.trace.json.gz")
    events = json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
    names = [event.get("name") for event in events]
    counts = [names.count(name.replace(":", "_")) for name in STRATEGIES]
    assert counts == [3, 3, 3]
    assert list(trace.rglob("*.xplane.pb"))


def test_two_processes_measure_one_result(tmp_path):
    options = ["--sync-period", "2", *TINY, "--json", str(tmp_path / "bench.json")]
    options += ["--strategies", "local_sgd", "overlap_local_sgd"]
    options += ["--profile", str(tmp_path / "trace")]
    processes = start([*COMMAND, *options], 2, free_coordinator())
    try:
        written = [b"".join(x.communicate(timeout=100)).decode() for x in processes]
    finally:
        end_all(processes)
    assert [x.returncode for x in processes] == [0, 0], written
    found = json.loads((tmp_path / "bench.json").read_text())
    check_sense(found)
    assert (found["num_processes"], found["num_workers"]) == (2, 2)
    assert (found["sync_period"], found["sync_period_reason"]) == (2, "as asked for")
    local, overlap = found["strategies"]
    assert (local["driver"], local["form"]) == ("fused", "tree")
    assert (overlap["driver"], overlap["form"]) == ("host", "buckets")
    assert ["sync period 2" in text for text in written] == [True, False]
    assert ["Timing" in text for text in written] == [True, False]
    assert {x.name for x in (tmp_path / "trace").iterdir()} == {
        "process_0",
        "process_1",
    }


def test_one_device_has_nobody_to_talk_to():
    environment = {**os.environ, "XLA_FLAGS": ""}
    done = subprocess.run(COMMAND, capture_output=True, text=True, env=environment)
    assert done.returncode == 2
    assert "--workers must be at least 2" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("name", "reduction"),
    [(name, exact()) for name in ALL]
    + [(name, int8()) for name in (*STRATEGIES, "overlap_local_sgd")]
    + [("cocod_sgd", x()) for x in (bfloat16, int4, int2, top_k)]
    + [(name, random_mask(1 / 4)) for name in ("local_sgd", "cocod_sgd")]
    + [(name, low_rank()) for name in ALL],
    ids=lambda x: getattr(x, "name", x),
)
def test_the_means_alone_send_what_a_round_sends(name, reduction):
    mesh, tau = worker_mesh(4), 3
    strategy, stream = named_strategy(name, num_workers=4)
    state, batches = arguments(SMALL, mesh, strategy, tau, reduction)
    params = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), state.params
    )
    sent = sending(strategy, stream, params, mesh, tau, reduction)
    worker_round = make_worker_round(
        SMALL.task.loss, OPTIMIZER, strategy, reduction=reduction
    )
    payload = payload_bytes(worker_round, state, batches, num_workers=4)
    stream = stream and reduction.two_means is None
    num_means = tau if stream or strategy.mean_of == "gradients" else 1
    # Fragments are filled up to whole tiles, and those of fewer bits to whole rows.
    filling = tau * 4 * 8 * 128 * stream
    assert payload <= num_means * sent.num_bytes <= payload + filling
    if reduction.is_compressed:
        # Also with all filling: 4 shards with a row of scales each, for every mean.
        models = num_means * NUM_BYTES / (tau if stream else 1)
        rest = filling + num_means * 4 * 2 * 128
        share = reduction.payload(jnp.zeros(2**16)) / (4 * 2**16)
        assert payload < share * models + rest


def test_the_means_alone_are_those_of_the_reduction():
    sent = []

    def reduce(message, state):
        sent.append(message.shape)
        return int8().reduce(message, state)

    message = jax.ShapeDtypeStruct((3,), np.float32)
    reduction = int8()._replace(reduce=reduce)
    means_alone((message,), worker_mesh(2), reduction)()
    assert sent == [(3,)]


def test_a_worker_of_several_devices_sends_its_shards():
    mesh = worker_mesh(2, fsdp=2)
    strategy, _ = named_strategy("overlap_local_sgd", num_workers=2)
    params = {"w": jax.ShapeDtypeStruct((8, 6), np.float32)}
    assert sending(strategy, False, params, mesh, 2).num_bytes == 4 * 48


def tiny(names, reduction=exact()):
    module = MLP(4, num_classes=10)
    inputs = jax.ShapeDtypeStruct((2, 3), np.float32)
    workload = Workload(module, inputs, jax.ShapeDtypeStruct((2,), np.int32))
    return Request(worker_mesh(2), "tiny", workload, names, 2, 1, reduction)


def rounds_of(name, reduction=exact()):
    request = tiny((name,), reduction)
    models = request.workload.task.init(jax.random.key(0))
    return make_rounds(request, name, models, make_batches(request, 2))


@pytest.mark.parametrize("name", ["sync_sgd", "local_sgd"])
@pytest.mark.parametrize("reduction", [exact(), int8()], ids=lambda x: x.name)
def test_workers_meet_in_rounds_with_a_mean_and_only_in_those(name, reduction):
    def spread(state):
        leaves = jax.tree.leaves(state.params)
        return max(float(np.ptp(np.asarray(x), axis=0).max()) for x in leaves)

    rounds = rounds_of(name, reduction)
    assert spread(rounds.with_mean()) == 0
    assert spread(rounds.without_mean()) > 1e-4
    if name == "local_sgd":  # what a round without a mean did is sent by the next
        assert spread(rounds.with_mean()) == 0


def test_all_means_are_those_of_the_reduction_that_is_asked_for():
    request = tiny(("local_sgd", "overlap_local_sgd", "sync_sgd"), int8())
    found = measure(request, Watch(lambda what, num: None, lambda: None))
    assert found.reduction == "int8"
    # Of 66 numbers, 33 for each of 2 workers: a block, and a row for its scale.
    num_bytes = 2 * (128 + 128)
    assert [x.bytes_per_round for x in found.strategies] == [
        num_bytes,
        num_bytes,
        2 * num_bytes,
    ]
    assert all(x.means.median > 0 for x in found.strategies)


def test_what_takes_no_reduction_with_a_state_is_said_before_anything_is_timed():
    command = [*COMMAND, "--cpu-devices", "2", "--reduction", "random_mask"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert "must send whole messages under sync_sgd" in done.stderr
    assert "Timing" not in done.stdout


def test_exposed_is_the_difference_of_each_pair_of_rounds():
    strategy, _ = named_strategy("cocod_sgd", num_workers=2)
    message = jax.ShapeDtypeStruct((250,), np.float32)
    sent = Sending("fused", "tree", (message,), num_bytes=1000)
    rounds = rounds_of("cocod_sgd")  # not run
    case = Case("cocod_sgd", strategy, False, sent, rounds)
    samples = {
        case.with_mean: np.array([3.0, 5.0, 9.0]),
        case.without_mean: np.array([2.5, 4.0, 9.0]),
        case.means: np.array([2.0, 2.0, 2.0]),
    }
    found = compare(case, samples, 4, 2, step=0.25, network=Ring(bandwidth=500.0))
    assert found.exposed == (0.25, 0.5, 0.75)
    assert found.hidden == 0.75
    assert found.bytes_per_round == 1000
    assert found.predicted == 2.0  # the mean; the steps take half of that
    assert found.ratio == 2.5


@pytest.mark.parametrize("num_workers", [2, 3, 5, 16])
@pytest.mark.parametrize("one", [1e-6, 0.02, 0.2])
def test_a_link_explains_the_mean_it_was_made_of(one, num_workers):
    # Also where one number took longer than the model: noise, on a fast network.
    link = link_of(one, 0.1, 10**6, num_workers)
    assert link.seconds(10**6, num_workers) == pytest.approx(0.1)
