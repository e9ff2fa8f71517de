"""When the parts of a round begin and end, in one of several processes.

The parts are the programs that the host driver runs, here with a clock. A delayed mean
goes parcel by parcel, and so does the mix behind it; each parcel is noted by itself.
"""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait

import jax

from experiments.network_work import OPTIMIZER, Work, loss, start, strategy_of
from olsgd_jax import on_workers, worker_mean, worker_mesh
from olsgd_jax.drivers.parcel_programs import make_programs, put_mixed
from olsgd_jax.local import WorkerState
from olsgd_jax.round_parts import make_round_parts
from olsgd_jax.types import ArrayTree, Batch

NUM_WARM = 2  # rounds that compile and settle

Spans = list[tuple[int, str, float, float]]
"""Round, part of it, start and end; in seconds, of a clock that processes share."""


def measure(work: Work, num_rounds: int) -> Spans:
    """Notes when the parts of some rounds began and ended, in this process."""
    mesh = worker_mesh(jax.device_count())
    strategy, _ = strategy_of(work, mesh.size)
    state, batches = start(work, mesh)
    parts = make_round_parts(loss, OPTIMIZER, strategy, "local", worker_mean)
    means, mixes = make_programs(parts, worker_mean, mesh, None)(state, None)
    spans: Spans = []

    @jax.jit
    def local_steps(start: WorkerState, batches: Batch) -> dict[str, ArrayTree]:
        end = on_workers(lambda *x: parts.local_steps(*x).end, mesh)(start, batches)
        return {name: getattr(end, name) for name in parts.stepped}

    def timed(number: int, part: str, run: Callable, *args: ArrayTree) -> ArrayTree:
        began = time.monotonic()
        result = jax.block_until_ready(run(*args))
        spans.append((number, part, began, time.monotonic()))
        return result

    def send(
        thread: ThreadPoolExecutor, number: int, models: WorkerState
    ) -> list[Future]:
        return [thread.submit(timed, number, "mean", x, models, None) for x in means]

    for number in range(-NUM_WARM, num_rounds):
        if number == 0:
            jax.block_until_ready(means[0](state, None))  # processes start together
        with ThreadPoolExecutor(1) as thread:
            delayed = strategy.mean_of == "start"
            pending = send(thread, number, state) if delayed else []
            stepped = timed(number, "local steps", local_steps, state, batches)
            end = state._replace(**stepped)
            if not delayed:
                pending = send(thread, number, end)
                wait(pending)
            mixed, sent = {}, []
            for mix, parcel in zip(mixes, pending, strict=True):
                sent.append(parcel.result())
                mixed |= timed(number, "mix", mix, state, stepped, sent, None)
        state = put_mixed(end, mixed, None)
    return [span for span in spans if span[0] >= 0]
