"""When the parts of a round begin and end, in one of several processes.

The parts are the three programs that the host driver runs, here with a clock.
"""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import optax

from experiments.hiding import BATCH_SIZE, DEPTH, WIDTH, loss
from olsgd_jax import (
    Strategy,
    init_state,
    on_workers,
    plain_loss,
    to_workers,
    worker_mean,
    worker_mesh,
)
from olsgd_jax.drivers.forms import flatten, unflatten
from olsgd_jax.local import WorkerState
from olsgd_jax.round import make_round_parts
from olsgd_jax.types import ArrayTree, Batch

NUM_WARM = 2  # rounds that compile and settle

Spans = list[tuple[int, str, float, float]]
"""Round, part of it, start and end; in seconds, of a clock that processes share."""


def measure(strategy: Strategy, sync_period: int, num_rounds: int) -> Spans:
    """Notes when the parts of some rounds began and ended, in this process."""
    mesh, optimizer = worker_mesh(jax.device_count()), optax.sgd(0.01)
    state = init_state([jnp.eye(WIDTH)] * DEPTH, optimizer, strategy, mesh=mesh)
    batches = to_workers(jnp.ones((sync_period, BATCH_SIZE, WIDTH)), mesh.size, mesh)
    local_steps, mean, mix = _programs(strategy, optimizer)
    spans: Spans = []

    def timed(number: int, part: str, run: Callable, *args: ArrayTree) -> ArrayTree:
        start = time.monotonic()
        result = jax.block_until_ready(run(*args))
        spans.append((number, part, start, time.monotonic()))
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


def _programs(strategy: Strategy, optimizer: optax.GradientTransformation):
    """Compiles the programs of a round as the host driver does."""
    mesh = worker_mesh(jax.device_count())
    parts = make_round_parts(
        plain_loss(loss), optimizer, strategy, "local", worker_mean
    )

    def local_steps(start: WorkerState, batches: Batch) -> WorkerState:
        return parts.local_steps(start, batches).end

    def mean(state: WorkerState) -> ArrayTree:
        return worker_mean(flatten(parts.models(state), mesh))

    def mix(start: WorkerState, end: WorkerState, sent: ArrayTree) -> WorkerState:
        return parts.mix(start, end, unflatten(sent, parts.models(start), mesh))

    return [jax.jit(on_workers(part, mesh)) for part in (local_steps, mean, mix)]
