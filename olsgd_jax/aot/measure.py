"""Compiles one round for one target, and reports its overlap and its cost."""

import time
from typing import NamedTuple, cast

import jax
import optax
from jax.sharding import Mesh
from jax.stages import Compiled, Lowered, Wrapped

from olsgd_jax._checks import check_choice
from olsgd_jax.aot.targets import target
from olsgd_jax.aot.workloads import OPTIMIZER, WORKLOADS, arguments, placed
from olsgd_jax.distribute import distribute
from olsgd_jax.drivers.make_round import make_round
from olsgd_jax.drivers.platforms import Platform, platform_of
from olsgd_jax.drivers.step import overlap_jit
from olsgd_jax.overlap.report import overlap_report
from olsgd_jax.reductions import REDUCTIONS
from olsgd_jax.reductions.base import Reduction
from olsgd_jax.reductions.send_nothing import send_nothing
from olsgd_jax.round.worker_round import tree_form
from olsgd_jax.strategies import STRATEGIES
from olsgd_jax.strategies.base import Strategy
from olsgd_jax.training.components import build_strategy
from olsgd_jax.training.config import Config
from olsgd_jax.types import ArrayTree, Batch, Params
from olsgd_jax.workers.axis import WORKERS
from olsgd_jax.workers.sharding import to_workers


class Setting(NamedTuple):
    """What is compiled."""

    target: str
    model: str = "mlp"
    strategy: str = "overlap_local_sgd"
    sync_period: int = 4
    stream: bool = False
    form: str = "chosen"  # for the platform; "tree": the compiler's defaults
    data: int = 1  # devices of a worker that share its batches
    fsdp: int = 1  # devices of a worker that share its model as well
    step: bool = False  # a train step of `distribute` instead of a round
    reduction: str = "exact"


def measure(setting: Setting, compare: bool = False) -> dict:
    """Compiles a round, and reads its schedule, memory and compile time.

    Args:
      setting: what to compile.
      compare: whether to compile the same round without its mean as well, in the
        instruction order that needs least memory. Only a delayed mean can be removed.
    """
    check_choice("model", setting.model, tuple(WORKLOADS))
    check_choice("strategy", setting.strategy, tuple(STRATEGIES))
    check_choice("reduction", setting.reduction, tuple(REDUCTIONS))
    check_choice("form", setting.form, ("chosen", "tree"))
    if setting.stream and setting.form == "tree":
        raise ValueError("form must be 'chosen' for a streamed round, got 'tree'")
    if setting.step and (setting.stream or setting.form == "tree" or compare):
        raise ValueError(
            "step must be False with stream, form 'tree' or compare: a step always "
            "sends a fragment, in its own form, and has no round to compare with"
        )
    mesh = target(setting.target, data=setting.data, fsdp=setting.fsdp)
    reduction = REDUCTIONS[setting.reduction]()
    platform = platform_of(mesh, reduction)
    if setting.form == "tree":
        platform = Platform(tree_form, {})
    compiled, result = _compile(setting, mesh, platform, reduction)
    report = overlap_report(compiled, setting.data * setting.fsdp)
    result = {
        **setting._asdict(),
        "mean_bytes": report.mean_bytes,
        "overlapped_bytes": report.overlapped_bytes,
        "overlapped_fraction": report.overlapped_fraction,
        **result,
        "collectives": [x._asdict() for x in report.collectives],
    }
    if compare and _strategy(setting, mesh).mean_of == "start":
        by_order = _without_mean(setting, mesh, platform)
        least = min(by_order.values(), key=lambda cost: cost["temporary_bytes"])
        result |= {"without_mean": least, "without_mean_by_order": by_order}
    return result


def _without_mean(setting: Setting, mesh: Mesh, platform: Platform) -> dict[str, dict]:
    """Gives the cost of the round without its mean, by instruction order.

    By default the TPU compiler chooses the order that it estimates to need the least
    memory, and the estimate may be wrong. For ResNet-18 on v5e it chooses another
    order without the mean than with it, which compiles in a third of the time and
    needs a fifth more memory. So the order used with the mean is tried as well.
    """
    options = {"default": platform.compiler_options}
    if mesh.devices.flat[0].platform == "tpu":
        options = {
            order: {**platform.compiler_options, "xla_memory_scheduler": order}
            for order in ("default", "list")
        }
    setting = setting._replace(stream=False)
    plain = platform._replace(form=tree_form)
    return {
        order: _compile(
            setting, mesh, plain._replace(compiler_options=own), send_nothing()
        )[1]
        for order, own in options.items()
    }


def _strategy(setting: Setting, mesh: Mesh) -> Strategy:
    return build_strategy(
        Config(strategy=setting.strategy, num_workers=mesh.shape[WORKERS])
    )


def _compile(
    setting: Setting,
    mesh: Mesh,
    platform: Platform,
    reduction: Reduction,
) -> tuple[Compiled, dict[str, float]]:
    num_workers = mesh.shape[WORKERS]
    if setting.step:
        params, lowered = _lowered_step(setting, mesh, reduction)
    else:
        params, lowered = _lowered_round(setting, mesh, platform, reduction)
    # CPU time, because other load on the machine hardly changes it.
    began = time.process_time()
    compiled = lowered.compile()
    seconds = time.process_time() - began
    memory = compiled.memory_analysis()
    assert memory is not None  # the compilers for GPUs and TPUs always report it
    leaves = jax.tree.leaves(params)
    return compiled, {
        "parameter_bytes": sum(x.size * x.dtype.itemsize for x in leaves)
        // num_workers,
        "temporary_bytes": memory.temp_size_in_bytes,
        "compile_seconds": round(seconds, 1),
    }


def _lowered_round(
    setting: Setting, mesh: Mesh, platform: Platform, reduction: Reduction
) -> tuple[Params, Lowered]:
    workload, strategy = WORKLOADS[setting.model], _strategy(setting, mesh)
    run = make_round(
        workload.task.loss,
        OPTIMIZER,
        strategy,
        sync_period=setting.sync_period,
        mesh=mesh,
        stream=setting.stream,
        platform=platform,
        reduction=reduction,
    )
    state, batches = arguments(workload, mesh, strategy, setting.sync_period, reduction)
    return state.params, cast(Wrapped, run).lower(state, batches)


def _lowered_step(
    setting: Setting, mesh: Mesh, reduction: Reduction
) -> tuple[Params, Lowered]:
    workload, strategy = WORKLOADS[setting.model], _strategy(setting, mesh)
    tx = distribute(OPTIMIZER, strategy, setting.sync_period, reduction=reduction)

    def train_step(state: ArrayTree, batch: Batch) -> tuple[ArrayTree, jax.Array]:
        params, model_state, opt_state = state
        gradient = jax.value_and_grad(workload.task.loss, has_aux=True)
        key = jax.random.key(0)
        (value, model_state), grads = gradient(params, model_state, batch, key)
        updates, opt_state = tx.update(grads, opt_state, params)
        params = optax.apply_updates(params, updates)
        return (params, model_state, opt_state), value

    def start() -> ArrayTree:
        params, model_state = workload.task.init(jax.random.key(0))
        return to_workers((params, model_state, tx.init(params)), mesh.shape[WORKERS])

    _, batches = arguments(workload, mesh, strategy, sync_period=1)
    batch = jax.eval_shape(lambda x: jax.tree.map(lambda leaf: leaf[:, 0], x), batches)
    state = jax.eval_shape(start)
    run = cast(Wrapped, overlap_jit(train_step, mesh))
    state, batch = placed(state, mesh), placed(batch, mesh)
    return state[0], run.lower(state, batch)
