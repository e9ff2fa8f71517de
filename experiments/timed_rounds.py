"""When the parts of a round begin and end, in one of several processes.

The parts are the three programs that the host driver runs, here with a clock.
"""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import jax
from jax.sharding import Mesh

from experiments.network_work import OPTIMIZER, Work, loss, start, strategy_of
from olsgd_jax import Strategy, on_workers, worker_mean, worker_mesh
from olsgd_jax.drivers.forms import flatten, unflatten
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
    local_steps, mean, mix = _programs(strategy, mesh)
    spans: Spans = []

    def timed(number: int, part: str, run: Callable, *args: ArrayTree) -> ArrayTree:
        began = time.monotonic()
        result = jax.block_until_ready(run(*args))
        spans.append((number, part, began, time.monotonic()))
        return result

    for number in range(-NUM_WARM, num_rounds):
        if number == 0:
            jax.block_until_ready(mean(state))  # both processes start together
        if strategy.mean_of == "start":
            with ThreadPoolExecutor(1) as thread:
                pending = thread.submit(timed, number, "mean", mean, state)
                end = timed(number, "local steps", local_steps, state, batches)
                sent = pending.result()
        else:
            end = timed(number, "local steps", local_steps, state, batches)
            sent = timed(number, "mean", mean, end)
        state = timed(number, "mix", mix, state, end, sent)
    return [span for span in spans if span[0] >= 0]


def _programs(strategy: Strategy, mesh: Mesh):
    """Compiles the programs of a round as the host driver does."""
    parts = make_round_parts(loss, OPTIMIZER, strategy, "local", worker_mean)

    def local_steps(start: WorkerState, batches: Batch) -> WorkerState:
        return parts.local_steps(start, batches).end

    def mean(state: WorkerState) -> ArrayTree:
        return worker_mean(flatten(parts.models(state), mesh))

    def mix(start: WorkerState, end: WorkerState, sent: ArrayTree) -> WorkerState:
        return parts.mix(start, end, unflatten(sent, parts.models(start), mesh))

    return [jax.jit(on_workers(part, mesh)) for part in (local_steps, mean, mix)]
