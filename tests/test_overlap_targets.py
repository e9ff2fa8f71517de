"""Rounds compiled for accelerators that are not here: what overlaps, what does not."""

import functools
import importlib.util
import os
import subprocess
import sys
import time

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
import pytest

from olsgd_jax import (
    REDUCTIONS,
    cocod_sgd,
    delayed_diloco,
    distribute,
    eager_diloco,
    init_state,
    local_sgd,
    make_round,
    make_worker_round,
    on_workers,
    overlap_jit,
    overlap_local_sgd,
    streaming_diloco,
    sync_sgd,
    to_workers,
)
from olsgd_jax.aot import TARGETS, target
from olsgd_jax.aot.hardware import GPUS
from olsgd_jax.aot.measure import Setting, measure
from olsgd_jax.drivers.forms.base import flat_form, fragments_form
from olsgd_jax.drivers.platforms import platform_of
from olsgd_jax.overlap import assert_overlapped, overlap_report
from olsgd_jax.round.worker_round import tree_form
from olsgd_jax.training import MLP, classification
from olsgd_jax.workers.sharding import state_shardings

TAU, BATCH, FEATURES, WIDTH, CLASSES = 4, 32, 512, 256, 10
PARAMETER_BYTES = 4 * (FEATURES * WIDTH + WIDTH + WIDTH * CLASSES + CLASSES)
# Per step: both layers forwards, both by weights, and the second by its input.
FLOPS = TAU * 2 * BATCH * WIDTH * (2 * FEATURES + 3 * CLASSES)

TASK = classification(
    MLP(WIDTH, CLASSES), jax.ShapeDtypeStruct((1, FEATURES), jnp.float32)
)
OPTIMIZER = optax.sgd(0.1, momentum=0.9)
OVERLAP, LOCAL = overlap_local_sgd(0.6, 0.7), local_sgd()
EXACT = REDUCTIONS["exact"]()
BATCHES = {
    "inputs": jax.ShapeDtypeStruct((8, TAU, BATCH, FEATURES), jnp.float32),
    "labels": jax.ShapeDtypeStruct((8, TAU, BATCH), jnp.int32),
}
# Keeps the compiler from joining the arrays of a small model into one all-reduce.
SEPARATE = {"xla_gpu_all_reduce_combine_threshold_bytes": "1000"}


def needs(module):
    found = importlib.util.find_spec(module) is not None
    return pytest.mark.skipif(not found, reason=f"{module} is not installed")


GPU, TPU = needs("jax_cuda13_plugin"), needs("libtpu")
H100, V5E, V6E = (
    pytest.param("h100", marks=GPU),
    pytest.param("v5e", marks=TPU),
    pytest.param("v6e", marks=TPU),
)


def placed(state, mesh):
    return jax.tree.map(
        lambda x, sharding: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding),
        state,
        state_shardings(state, mesh),
    )


def compiled_for(mesh, strategy, run, *present, tau=TAU, reduction=EXACT):
    """Compiles a round on a mesh of eight devices that are not here."""
    m = mesh.shape["workers"]

    def start():
        params, _ = TASK.init(jax.random.key(0))
        return init_state(
            params, OPTIMIZER, strategy, num_workers=m, reduction=reduction
        )

    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        batches = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct((m, tau, *x.shape[2:]), x.dtype), BATCHES
        )
        state = placed(jax.eval_shape(start), mesh)
        return run.lower(state, batches, *present).compile()


@functools.cache
def library_round(name, strategy, stream=False, tau=TAU, reduction="exact", **devices):
    """The round as `make_round` gives it to users."""
    mesh, reduction = target(name, **devices), REDUCTIONS[reduction]()
    run = make_round(
        TASK.loss,
        OPTIMIZER,
        strategy,
        sync_period=tau,
        mesh=mesh,
        stream=stream,
        reduction=reduction,
    )
    return compiled_for(mesh, strategy, run, tau=tau, reduction=reduction)


def plain_round(name, form, options=None):
    """A round with this form of the mean and nothing but these options."""
    mesh = target(name)
    worker_round = make_worker_round(TASK.loss, OPTIMIZER, OVERLAP, form=form)
    run = jax.jit(
        on_workers(worker_round, mesh), donate_argnums=0, compiler_options=options
    )
    return compiled_for(mesh, OVERLAP, run)


@pytest.mark.parametrize("name", [H100, V6E])
def test_the_librarys_round_sends_every_byte_while_all_steps_run(name):
    compiled = library_round(name, OVERLAP)
    assert_overlapped(compiled)
    report = overlap_report(compiled)
    (mean,) = report.collectives
    assert (mean.bytes, mean.loops_between) == (PARAMETER_BYTES, 1)
    assert mean.flops_between == report.program_flops == FLOPS


@pytest.mark.parametrize("stream", [False, True])
@TPU
def test_a_v5e_exchanges_every_byte_twice_while_all_steps_run(stream):
    compiled = library_round("v5e", OVERLAP, stream)
    assert_overlapped(compiled)
    report = overlap_report(compiled)
    (mean,) = report.collectives
    assert mean.kind == "all-to-all-start"
    # Half of the models in parts for 8 workers, each filled up to whole tiles.
    assert 2 * PARAMETER_BYTES <= mean.bytes < 2 * PARAMETER_BYTES + TAU * 8 * 4096
    assert mean.flops_between == report.program_flops == FLOPS
    # Or the compiler would put gradients off until they have an exchange to hide.
    assert " conditional(" in compiled.as_text()


# What every delayed strategy but Overlap Local-SGD sends, in models.
DELAYED = {
    "momentum": (cocod_sgd(momentum=0.7), 1),
    "delayed": (delayed_diloco(), 1),
    "eager": (eager_diloco(num_workers=8), 1),
    "streaming": (streaming_diloco(num_fragments=2), 1 / 2),
}


@pytest.mark.parametrize("name", [H100, V5E, V6E])
@pytest.mark.parametrize("strategy", DELAYED)
def test_every_delayed_strategy_overlaps_all_that_it_sends(name, strategy):
    strategy, num_models = DELAYED[strategy]
    compiled = library_round(name, strategy)
    assert_overlapped(compiled)
    assert overlap_report(compiled).mean_bytes >= num_models * PARAMETER_BYTES


COMPRESSED = {"int8": (128 + 4) / 512, "int4": (64 + 4) / 512}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("name", "tau", "reduction"),
    [
        pytest.param("h100", 2, "int4", marks=GPU),
        pytest.param("h100", 8, "int8", marks=GPU),
        pytest.param("v5e", 2, "int8", marks=TPU),
        pytest.param("v6e", 4, "int4", marks=TPU),
    ],
)
def test_a_compressed_mean_overlaps_and_sends_that_much_less(
    name, tau, reduction, stream
):
    compiled = library_round(name, OVERLAP, stream, tau, reduction)
    assert_overlapped(compiled)
    report = overlap_report(compiled)
    # And a few rows that fill up the shards.
    expected = COMPRESSED[reduction] * PARAMETER_BYTES
    assert expected <= report.mean_bytes < expected + tau * 4 * 8 * 1024


@pytest.mark.parametrize(
    ("name", "strategy", "tau", "reduction"),
    [
        pytest.param("h100", "cocod_sgd", 8, "int4", marks=GPU),
        pytest.param("v6e", "cocod_sgd", 8, "int4", marks=TPU),
        pytest.param("h100", "delayed_diloco", 8, "int4", marks=GPU),
    ],
)
def test_so_does_that_of_a_step_of_distribute(name, strategy, tau, reduction):
    setting = Setting(
        name, strategy=strategy, sync_period=tau, reduction=reduction, step=True
    )
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        found = measure(setting)
    assert found["overlapped_fraction"] >= 0.99
    # Both exchanges are spread over the steps of a round.
    share = tau * found["mean_bytes"] / found["parameter_bytes"]
    assert share < 1.05 * COMPRESSED[reduction]


@pytest.mark.parametrize("name", [H100, V5E, V6E])
def test_a_mean_in_low_rank_overlaps_in_both_halves_of_a_round(name):
    compiled = library_round(name, OVERLAP, tau=8, reduction="low_rank")
    assert_overlapped(compiled)
    # 0.03 of the models, in parts of whole tiles for every worker.
    expected = 4 * (4 * (FEATURES + 2 * WIDTH + CLASSES) + WIDTH + CLASSES)
    sent = overlap_report(compiled).mean_bytes
    assert expected <= sent < expected + 4 * 8 * 1024


@pytest.mark.parametrize("name", [H100, V6E])
def test_so_it_does_in_a_step_of_distribute(name):
    setting = Setting(name, sync_period=8, reduction="low_rank", step=True)
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        found = measure(setting)
    assert found["overlapped_fraction"] >= 0.99


@GPU
@pytest.mark.parametrize("step", [False, True])
def test_a_compressed_mean_of_a_convolutional_network_overlaps(step):
    setting = Setting(
        "h100", model="resnet18", sync_period=8, reduction="int8", step=step
    )
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        found = measure(setting)
    assert found["overlapped_fraction"] >= 0.99
    sent = found["mean_bytes"] * (8 if step else 1)
    assert sent < 0.27 * found["parameter_bytes"]


@TPU
def test_a_tpu_starts_a_small_exchange_early_in_a_long_step(tmp_path):
    text = text_before_code(
        *("--target", "v6e", "--model", "resnet18", "--reduction", "int4"),
        *("--sync-period", "8", "--step"),
        folder=tmp_path,
    )
    report = overlap_report(text)
    (mean,) = report.collectives
    # With a tenth of the scheduler's estimate for convolutions, it spans 8 %.
    assert mean.flops_between > report.program_flops / 4


def text_before_code(*arguments, folder):
    """Gives the scheduled program, without the minutes that a TPU's code takes."""
    flags = f"--xla_dump_to={folder} --xla_dump_hlo_as_text"
    process = subprocess.Popen(
        [sys.executable, "-m", "olsgd_jax.overlap", *arguments],
        env={**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags},
        stdout=subprocess.DEVNULL,
    )
    before, size = None, 0
    try:
        # The text is whole once it does not grow any more.
        while not size or size != before:
            assert process.poll() is None
            time.sleep(0.5)
            written = list(folder.glob("*.after_optimizations.txt"))
            before, size = size, sum(x.stat().st_size for x in written)
    finally:
        process.kill()
        process.wait()
    return written[0].read_text()


@TPU
def test_a_v5e_sends_arrays_as_they_lie_in_memory():
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        found = measure(Setting("v5e", strategy="cocod_sgd", sync_period=2))
    # What is sent, the models as they are trained, and one array of the mean at a time.
    assert found["temporary_bytes"] < 2.5 * found["parameter_bytes"]


@GPU
def test_a_step_of_distribute_changes_its_state_in_place():
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        found = measure(Setting("h100", sync_period=2, step=True))
    # A branch at the round's end would keep its results apart: above 4 models in all.
    assert found["temporary_bytes"] < 3.5 * found["parameter_bytes"]


@TPU
def test_a_round_is_compared_with_the_one_that_needs_least_without_a_mean():
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        found = measure(Setting("v5e", sync_period=2), compare=True)
    by_order = found["without_mean_by_order"]
    memory = {order: cost["temporary_bytes"] for order, cost in by_order.items()}
    assert memory.keys() == {"default", "list"}
    assert memory["default"] != memory["list"]  # or nothing would be chosen
    assert found["without_mean"]["temporary_bytes"] == min(memory.values())


@TPU
def test_a_v5e_exchanges_once_more_than_needed_beside_an_odd_number_of_steps():
    compiled = library_round("v5e", OVERLAP, tau=3)
    assert_overlapped(compiled)
    (mean,) = overlap_report(compiled).collectives
    assert "all-to-all" in mean.kind
    # Filled up to whole tiles: a part for each of eight workers.
    assert 3 * PARAMETER_BYTES <= mean.bytes < 3 * (PARAMETER_BYTES + 8 * 4096)


@TPU
def test_a_v5e_fuses_one_vector_into_a_single_step():
    compiled = library_round("v5e", OVERLAP, tau=1)
    assert_overlapped(compiled)
    report = overlap_report(compiled)
    assert {x.kind for x in report.collectives} == {"fusion all-reduce"}
    assert report.mean_bytes == PARAMETER_BYTES


@TPU
def test_a_v5e_exposes_exchanges_unless_told_otherwise():
    compiled = plain_round("v5e", platform_of(target("v5e")).form)
    assert overlap_report(compiled).overlapped_bytes == 0
    with pytest.raises(AssertionError, match="xla_tpu_enable_async_all_to_all"):
        assert_overlapped(compiled)


@pytest.mark.parametrize("name", [H100, V5E, V6E])
def test_a_round_that_workers_may_miss_overlaps_as_well(name):
    mesh, present = target(name), jax.ShapeDtypeStruct((8,), jnp.bool_)
    run = make_round(TASK.loss, OPTIMIZER, OVERLAP, sync_period=TAU, mesh=mesh)
    compiled = compiled_for(mesh, OVERLAP, run, present)
    assert_overlapped(compiled)
    (mean,) = overlap_report(compiled).collectives
    if name != "v5e":
        assert (mean.bytes, mean.loops_between) == (PARAMETER_BYTES + 8, 1)


@pytest.mark.parametrize("name", [H100, V6E])
def test_a_streamed_round_sends_a_fragment_with_every_step(name):
    compiled = library_round(name, OVERLAP, stream=True)
    assert_overlapped(compiled)
    (mean,) = overlap_report(compiled).collectives
    assert PARAMETER_BYTES <= mean.bytes < PARAMETER_BYTES + TAU * 4096


@GPU
@pytest.mark.parametrize("share", ["data", "fsdp"])
def test_a_worker_of_four_gpus_sends_its_mean_while_its_devices_talk(share):
    compiled = library_round("h100", OVERLAP, **{share: 4})
    assert_overlapped(compiled, worker_devices=4)
    report = overlap_report(compiled, worker_devices=4)
    (mean,) = [x for x in report.collectives if not x.inside]
    parts = 4 if share == "fsdp" else 1
    assert PARAMETER_BYTES / parts <= mean.bytes < PARAMETER_BYTES / parts + 4096
    assert mean.flops_between == report.program_flops > 0
    assert any(x.inside for x in report.collectives)


@pytest.mark.parametrize("share", ["data", "fsdp"])
@pytest.mark.parametrize("name", [V5E, V6E])
def test_so_does_a_worker_of_four_tpus_in_two_exchanges(name, share):
    compiled = library_round(name, OVERLAP, **{share: 4})
    assert_overlapped(compiled, worker_devices=4)
    report = overlap_report(compiled, worker_devices=4)
    (mean,) = [x for x in report.collectives if not x.inside]
    assert "all-to-all" in mean.kind
    # Filled up to whole tiles: both fragments have a part for each of two workers.
    least = 2 * PARAMETER_BYTES // (4 if share == "fsdp" else 1)
    assert least <= mean.bytes < least + 2 * 4 * 4096
    assert any(x.inside for x in report.collectives)


@TPU
def test_a_single_step_leaves_it_exposed_and_that_is_said():
    compiled = library_round("v6e", OVERLAP, tau=1, data=4)
    with pytest.raises(AssertionError, match="make sync_period 2 or more"):
        assert_overlapped(compiled, worker_devices=4)


class Normalized(nn.Module):
    """Layers with batch norm; statistics of all workers where an axis is named."""

    axis_name: str | None = None
    widths: tuple[int, ...] = (WIDTH, CLASSES)

    @nn.compact
    def __call__(self, x, train):
        for width in self.widths:
            x = nn.Dense(width)(x)
            norm = nn.BatchNorm(not train, axis_name=self.axis_name if train else None)
            x = norm(x)
        return x


def normalized_round(name, axis_name, form, options):
    """A round of a network with batch norm, synchronous where an axis is named."""
    mesh = target(name)
    inputs = jax.ShapeDtypeStruct((1, FEATURES), jnp.float32)
    task = classification(Normalized(axis_name), inputs)
    worker_round = make_worker_round(task.loss, OPTIMIZER, OVERLAP, form=form(mesh))
    run = jax.jit(on_workers(worker_round, mesh), compiler_options=options)

    def start():
        params, model_state = task.init(jax.random.key(0))
        return init_state(
            params, OPTIMIZER, OVERLAP, num_workers=8, model_state=model_state
        )

    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        return run.lower(placed(jax.eval_shape(start), mesh), BATCHES).compile()


# Each as an option of its own, and the advice has to name it.
APART = {
    "xla_gpu_enable_latency_hiding_scheduler": True,
    "xla_gpu_all_reduce_combine_threshold_bytes": 0,
    "xla_gpu_experimental_parallel_collective_overlap_limit": 4096,
}


@GPU
@pytest.mark.parametrize("form", [flat_form, fragments_form])
def test_batch_norm_of_all_workers_exposes_the_mean_and_is_named(form):
    scheduler = {"xla_gpu_enable_latency_hiding_scheduler": True}
    assert_overlapped(normalized_round("h100", None, form, scheduler))
    compiled = normalized_round("h100", "workers", form, scheduler)
    assert overlap_report(compiled).overlapped_fraction < 0.02
    with pytest.raises(AssertionError, match="batch norm with axis_name") as error:
        assert_overlapped(compiled)
    assert all(option in str(error.value) for option in APART)


@GPU
@pytest.mark.parametrize("name", GPUS)
@pytest.mark.parametrize("form", [flat_form, fragments_form])
def test_the_mean_overlaps_beside_it_if_kept_apart(form, name):
    report = overlap_report(normalized_round(name, "workers", form, APART))
    mean = max(report.collectives, key=lambda x: x.bytes)
    assert mean.bytes >= PARAMETER_BYTES
    assert not mean.exposed
    # What is left is of batch norm, for which the next layer has to wait.
    others = [x for x in report.collectives if x is not mean]
    assert others
    assert all(x.is_amid for x in others if x.exposed)


@GPU
@pytest.mark.parametrize("name", GPUS)
def test_a_step_with_batch_norm_of_all_workers_hides_its_fragment(name):
    mesh, widths = target(name), (2048, 2048, CLASSES)
    task = classification(
        Normalized("workers", widths), jax.ShapeDtypeStruct((1, 512), jnp.float32)
    )
    tx = distribute(OPTIMIZER, OVERLAP, sync_period=2)

    def train_step(state, batch):
        params, model_state, opt_state = state
        loss = jax.value_and_grad(task.loss, has_aux=True)
        (_, model_state), grads = loss(params, model_state, batch, jax.random.key(0))
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), model_state, opt_state

    def start():
        params, model_state = task.init(jax.random.key(0))
        return to_workers((params, model_state, tx.init(params)), 8)

    step = overlap_jit(train_step, mesh)
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        state = placed(jax.eval_shape(start), mesh)
        batch = {
            "inputs": jax.ShapeDtypeStruct((8, BATCH, 512), jnp.float32),
            "labels": jax.ShapeDtypeStruct((8, BATCH), jnp.int32),
        }
        report = overlap_report(step.lower(state, batch).compile())
    fragment = max(report.collectives, key=lambda x: x.bytes)
    params = sum(a * b for a, b in zip((512, *widths), widths, strict=False))
    assert fragment.bytes >= 4 * params // 2
    assert not fragment.exposed
    assert report.overlapped_fraction > 0.99
    assert any(x.is_amid for x in report.collectives if x.exposed)


@pytest.mark.parametrize("name", [H100, V5E, V6E])
def test_the_mean_of_a_blocking_strategy_is_exposed(name):
    compiled = library_round(name, LOCAL)
    report = overlap_report(compiled)
    assert report.mean_bytes == PARAMETER_BYTES
    assert report.overlapped_fraction == 0
    with pytest.raises(AssertionError, match="no option can help"):
        assert_overlapped(compiled)


@pytest.mark.parametrize("name", [H100, V5E, V6E])
def test_the_gradients_of_synchronous_sgd_are_exposed_at_every_step(name):
    report = overlap_report(library_round(name, sync_sgd()))
    assert report.mean_bytes == TAU * PARAMETER_BYTES
    assert report.overlapped_fraction == 0


@pytest.mark.parametrize(
    ("name", "option"),
    [
        pytest.param("v5e", "xla_tpu_enable_async_collective_fusion", marks=TPU),
        pytest.param("v6e", "xla_tpu_enable_sparse_core_collective", marks=TPU),
    ],
)
def test_a_tpu_exposes_the_mean_unless_told_otherwise(name, option):
    compiled = plain_round(name, flat_form())
    assert overlap_report(compiled).overlapped_bytes == 0
    with pytest.raises(AssertionError, match=option):
        assert_overlapped(compiled)


@GPU
def test_a_gpu_overlaps_only_one_of_several_means():
    compiled = plain_round("h100", tree_form, SEPARATE)
    report = overlap_report(compiled)
    assert report.mean_bytes == PARAMETER_BYTES
    assert sum(not x.exposed for x in report.collectives) == 1
    with pytest.raises(AssertionError, match="parallel_collective_overlap_limit"):
        assert_overlapped(compiled)


@GPU
def test_a_gpu_overlaps_several_means_if_allowed_to():
    limit = {"xla_gpu_experimental_parallel_collective_overlap_limit": 4}
    assert_overlapped(plain_round("h100", tree_form, SEPARATE | limit))


@GPU
def test_an_h100_overlaps_one_flat_mean_by_itself():
    assert_overlapped(plain_round("h100", flat_form()))


@GPU
def test_an_a100_is_told_to_look_for_overlap_and_given_one_vector():
    # Either is enough in JAX 0.10; since 0.12 both are needed.
    scheduler = {"xla_gpu_enable_latency_hiding_scheduler": True}
    with pytest.raises(AssertionError, match="latency_hiding_scheduler"):
        assert_overlapped(plain_round("a100", tree_form))
    assert_overlapped(plain_round("a100", flat_form(), scheduler))


@pytest.mark.parametrize(
    "name", [pytest.param(x, marks=GPU if x in GPUS else TPU) for x in TARGETS]
)
def test_every_target_has_eight_workers(name):
    assert dict(target(name).shape) == {"workers": 8}


@GPU
def test_a_topology_may_be_given():
    assert target("h100:1x2x8").size == 16


@pytest.mark.parametrize("name", ["h100:8", "v5e:3x3"])
def test_an_impossible_topology_says_what_one_looks_like(name):
    pytest.importorskip("libtpu")
    pytest.importorskip("jax_cuda13_plugin")
    with pytest.raises(ValueError, match=r"topology that \w+ comes in, as in .*, got"):
        target(name)


@pytest.mark.parametrize("name", ["h200", "", "H100", "tpu:2x4"])
def test_an_unknown_target_names_the_known_ones(name):
    with pytest.raises(ValueError, match=f"one of {', '.join(TARGETS)}"):
        target(name)


@pytest.mark.parametrize("name", ["h100", "v5e"])
def test_a_missing_compiler_says_how_to_install_it(name, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda module: None)
    with pytest.raises(ModuleNotFoundError, match=r'pip install "olsgd_jax\[aot\]"'):
        target(name)


@GPU
def test_a_gpu_target_says_what_jax_must_be_told():
    code = "from olsgd_jax.aot import target; target('h100')"
    own = {name: x for name, x in os.environ.items() if name != "JAX_PLATFORMS"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=own, capture_output=True, text=True
    )
    assert "JAX_PLATFORMS must be cpu to compile for h100" in done.stderr
