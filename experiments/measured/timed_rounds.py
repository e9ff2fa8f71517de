"""When the parts of a round begin and end, in one of several processes.

The parts are the programs that the host driver runs, here with a clock. A delayed mean
goes bucket by bucket, and so does the mix behind it; each bucket is noted by itself.
Synchronous SGD has a mean inside every local step: the gradient before it and the
update after it are both noted as local steps.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from typing import Protocol

import jax
import optax
from jax.sharding import Mesh

from experiments.measured.network_rounds import meeting
from experiments.measured.network_work import OPTIMIZER, Work, loss, start, strategy_of
from olsgd_jax import WorkerState, exact, on_workers, worker_mean, worker_mesh
from olsgd_jax.drivers import make_programs, put_mixed
from olsgd_jax.round import make_round_parts
from olsgd_jax.types import ArrayTree, Batch, Grads

NUM_WARM = 2  # rounds that compile and settle

Spans = list[tuple[int, str, float, float]]
"""Round, part of it, start and end; in seconds, of a clock that processes share."""


class Timed(Protocol):
    """Runs a part of a round, and notes when."""

    def __call__(self, part: str, run: Callable, /, *args: ArrayTree) -> ArrayTree:
        """Gives what `run` does of `args`, once it is there."""
        ...


TimedRound = Callable[[Timed, WorkerState, Batch], WorkerState]


def measure(work: Work, num_rounds: int) -> Spans:
    """Notes when the parts of some rounds began and ended, in this process."""
    mesh = worker_mesh(jax.device_count())
    run_round, meet = make_timed_round(work, mesh), meeting(mesh)
    state, batches = start(work, mesh)
    spans: Spans = []

    def note(number: int, part: str, run: Callable, *args: ArrayTree) -> ArrayTree:
        began = time.monotonic()
        result = jax.block_until_ready(run(*args))
        spans.append((number, part, began, time.monotonic()))
        return result

    for number in range(-NUM_WARM, num_rounds):
        if number == 0:
            meet()  # processes start together
        state = run_round(partial(note, number), state, batches)
    return [span for span in spans if span[0] >= 0]


def together(workers: Sequence[Spans]) -> list[dict[str, int | str | float]]:
    """Joins what workers noted, in seconds from the start of the first round."""
    first = min(start for spans in workers for _, _, start, _ in spans)
    return [
        {
            "worker": worker,
            "round": number,
            "part": part,
            "start": start - first,
            "end": end - first,
        }
        for worker, spans in enumerate(workers)
        for number, part, start, end in spans
    ]


def make_timed_round(work: Work, mesh: Mesh) -> TimedRound:
    """Makes a round that runs its parts one by one, and the delayed mean meanwhile."""
    strategy, _ = strategy_of(work, mesh.size)
    if strategy.name == "sync_sgd":
        return _make_sync_round(work, mesh)
    parts = make_round_parts(loss, OPTIMIZER, strategy, "local", exact())
    programs = make_programs(parts, exact(), mesh, None)

    @jax.jit
    def local_steps(start: WorkerState, batches: Batch) -> dict[str, ArrayTree]:
        end = on_workers(lambda *x: parts.local_steps(*x).end, mesh)(start, batches)
        return {name: getattr(end, name) for name in parts.stepped}

    def run_round(timed: Timed, state: WorkerState, batches: Batch) -> WorkerState:
        means, mixes = programs(state, None)

        def send(thread: ThreadPoolExecutor, models: WorkerState) -> list[Future]:
            return [thread.submit(timed, "mean", x, models, None) for x in means]

        with ThreadPoolExecutor(1) as thread:
            delayed = strategy.mean_of == "start"
            pending = send(thread, state) if delayed else []
            stepped = timed("local steps", local_steps, state, batches)
            end = state._replace(**stepped)
            if not delayed:
                pending = send(thread, end)
                wait(pending)
            mixed, sent = {}, []
            for mix, bucket in zip(mixes, pending, strict=True):
                sent.append(bucket.result())
                mixed |= timed("mix", mix, state, stepped, sent, None)
        return put_mixed(end, mixed, None)

    return run_round


def _make_sync_round(work: Work, mesh: Mesh) -> TimedRound:
    """Cuts the local step of synchronous SGD in two, with the mean in between."""

    def worker_gradient(state: WorkerState, batch: Batch) -> Grads:
        gradient = jax.grad(loss, has_aux=True)
        return gradient(state.params, state.model_state, batch, state.key)[0]

    def worker_update(state: WorkerState, grads: Grads) -> WorkerState:
        updates, opt_state = OPTIMIZER.update(grads, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        return state._replace(params=params, opt_state=opt_state)

    gradient = jax.jit(on_workers(worker_gradient, mesh))
    mean = jax.jit(on_workers(worker_mean, mesh))
    update = jax.jit(on_workers(worker_update, mesh))

    def run_round(timed: Timed, state: WorkerState, batches: Batch) -> WorkerState:
        for k in range(work.sync_period):
            batch = jax.tree.map(lambda x, k=k: x[:, k], batches)
            own = timed("local steps", gradient, state, batch)
            state = timed("local steps", update, state, timed("mean", mean, own))
        return state._replace(round=state.round + 1)

    return run_round
