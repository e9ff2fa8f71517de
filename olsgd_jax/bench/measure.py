"""Measures a local step, the mean alone, and rounds with and without their means."""

import pathlib
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from olsgd_jax.bench.compare import Case, choose_period, compare
from olsgd_jax.bench.link import link_of
from olsgd_jax.bench.request import Request
from olsgd_jax.bench.result import Measured
from olsgd_jax.bench.sending import means_alone, sending
from olsgd_jax.bench.turns import NUM_WARM, Samples, quartiles, take_turns
from olsgd_jax.bench.work import make_batches, make_rounds
from olsgd_jax.timing import RingOrTree
from olsgd_jax.training.components.strategy import named_strategy
from olsgd_jax.workers.mesh import DATA, FSDP

NUM_PROFILED = 3
"""Rounds of each strategy in a profile."""

_FEW_STEPS = 4  # consecutive local steps that are timed to choose the sync period
_DELAYED = "overlap_local_sgd"  # the strategy whose mean the sync period has to hide
_STEPS = "local_sgd"  # the strategy whose rounds without a mean are local steps only


class Watch(NamedTuple):
    """Callbacks that report a benchmark's progress."""

    begin: Callable[[str, int], None]  # takes the name of a phase and its calls
    advance: Callable[[], None]  # called after each call


def measure(
    request: Request, watch: Watch, profile: pathlib.Path | None = None
) -> Measured:
    """Measures everything that is requested; every process calls it.

    Args:
      request: what to measure.
      watch: callbacks that report the progress.
      profile: directory for a trace of a few rounds of each strategy.
    """
    mesh, num_workers = request.mesh, request.num_workers
    models = jax.jit(request.workload.task.init)(jax.random.key(0))
    params, _ = models
    delayed, _ = named_strategy(_DELAYED, num_workers)
    reduction = request.reduction
    model = sending(delayed, False, params, mesh, _FEW_STEPS, reduction)
    one = means_alone((jax.ShapeDtypeStruct((), jnp.float32),), mesh)
    means = {"one": one, "model": means_alone(model.messages, mesh, reduction)}

    def timed(what: str, works: dict[str, Callable]) -> dict[str, Samples]:
        watch.begin(what, len(works) * (NUM_WARM + request.repetitions))
        return take_turns(works, request.repetitions, one, watch.advance)

    def link(samples: dict[str, Samples]) -> RingOrTree:
        seconds = {x: quartiles(samples[x]).median for x in means}
        return link_of(seconds["one"], seconds["model"], model.num_bytes, num_workers)

    sync_period, reason = request.sync_period, "as asked for"
    if sync_period is None:
        few = make_batches(request, _FEW_STEPS)
        steps = {"steps": make_rounds(request, _STEPS, models, few).without_mean}
        samples = timed("Timing a local step and the mean", {**means, **steps})
        step = quartiles(samples["steps"]).median / _FEW_STEPS
        sync_period, reason = choose_period(
            delayed, model.num_bytes, num_workers, step, link(samples)
        )

    batches = make_batches(request, sync_period)
    works: dict[str, Callable] = {
        **means,
        "steps": make_rounds(request, _STEPS, models, batches).without_mean,
    }
    cases = []
    for name in request.strategies:
        strategy, stream = named_strategy(name, num_workers)
        sent = sending(strategy, stream, params, mesh, sync_period, reduction)
        rounds = make_rounds(request, name, models, batches)
        # One that needs whole arrays is timed as one mean a round.
        streamed = stream and reduction.two_means is None
        case = Case(name, strategy, streamed, sent, rounds)
        cases.append(case)
        works[case.with_mean] = rounds.with_mean
        works[case.without_mean] = rounds.without_mean
        if case.means not in works:
            works[case.means] = means_alone(sent.messages, mesh, reduction)
    samples = timed(f"Timing rounds, sync period {sync_period}", works)
    if profile is not None:
        _profile(cases, one, profile, watch)

    network, step = link(samples), quartiles(samples["steps"] / sync_period)
    return Measured(
        device_kind=mesh.devices.flat[0].device_kind,
        num_devices=mesh.size,
        num_processes=jax.process_count(),
        num_workers=num_workers,
        data=mesh.shape.get(DATA, 1),
        fsdp=mesh.shape.get(FSDP, 1),
        jax_version=jax.__version__,
        model=request.model,
        reduction=reduction.name,
        parameter_bytes=sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(params)),
        batch_size=request.workload.inputs.shape[0],
        sync_period=sync_period,
        sync_period_reason=reason,
        repetitions=request.repetitions,
        step=step,
        one_number_mean=quartiles(samples["one"]),
        model_mean=quartiles(samples["model"]),
        bandwidth=network.bandwidth,
        latency=network.latency,
        strategies=tuple(
            compare(case, samples, sync_period, num_workers, step.median, network)
            for case in cases
        ),
    )


def _profile(
    cases: list[Case], meet: Callable, directory: pathlib.Path, watch: Watch
) -> None:
    """Writes a trace of a few rounds of each strategy."""
    watch.begin(f"Writing a profile to {directory}", len(cases) * NUM_PROFILED)
    if jax.process_count() > 1:  # processes on one machine would write the same files
        directory = directory / f"process_{jax.process_index()}"
    with jax.profiler.trace(str(directory)):
        for case in cases:
            name = case.name.replace(":", "_")  # a colon would cut it off in the trace
            for number in range(NUM_PROFILED):
                meet()
                with jax.profiler.StepTraceAnnotation(name, step_num=number):
                    case.rounds.with_mean()
                watch.advance()
