"""Rounds with and without communication, timed in one of several processes.

Inside the same processes, rounds that communicate take turns with rounds of the same
work that do not, and with the means alone. Each begins on all hosts together, after a
mean of one number; their order is another one every time.
"""

import random
import time
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp

from experiments.gloo import ring_bytes
from experiments.host_processes import sent_bytes
from experiments.network_work import Work, make_run, sent_trees, start, worker_round
from olsgd_jax import (
    on_workers,
    payload_bytes,
    send_nothing,
    to_workers,
    worker_mean,
    worker_mesh,
)
from olsgd_jax.types import Mean

NUM_WARM = 2  # rounds of every kind that compile and settle

Samples = dict[str, list[float]]
"""Seconds of rounds "with" and "without" communication, of the "mean" alone, and of a
mean of "one" number. Under the same names with "_cpu" behind them: CPU seconds of this
process; with "_bytes": what its host sent, the mean of one number included."""


def measure(work: Work, repetitions: int) -> Samples:
    """Times rounds of every kind in this process."""
    mesh = worker_mesh(jax.device_count())
    average = jax.jit(on_workers(worker_mean, mesh))
    one = to_workers(jnp.ones(()), mesh.size, mesh)
    sent = [to_workers(x, mesh.size, mesh) for x in sent_trees(work, mesh.size)]

    def rounds(mean: Mean) -> Callable[[], None]:
        run = make_run(work, mean, mesh)
        state, batches = start(work, mesh)

        def run_one() -> None:
            nonlocal state  # a round may donate the one it was given
            state, _ = jax.block_until_ready(run(state, batches))

        return run_one

    def meet() -> None:
        jax.block_until_ready(average(one))

    def means_alone() -> None:
        for tree in sent:
            jax.block_until_ready(average(tree))

    kinds = {
        "with": rounds(worker_mean),
        "without": rounds(send_nothing),
        "mean": means_alone,
        "one": meet,
    }
    return _take_turns(kinds, repetitions, meet)


def sizes(work: Work) -> dict[str, float]:
    """Says what a worker sends in a round, by its program and by the transport's."""
    mesh = worker_mesh(jax.device_count())
    code = worker_round(work, worker_mean, mesh)
    arrays = jax.tree.leaves(sent_trees(work, mesh.size))
    return {
        "payload_bytes": payload_bytes(code, *start(work, mesh), num_workers=mesh.size),
        "expected_bytes": sum(ring_bytes(x.nbytes, mesh.size) for x in arrays),
    }


def _take_turns(
    kinds: Mapping[str, Callable[[], None]], repetitions: int, meet: Callable
) -> Samples:
    samples: Samples = {
        f"{kind}{unit}": [] for unit in ("", "_cpu", "_bytes") for kind in kinds
    }
    chance = random.Random(0)  # the same order in all processes
    for repetition in range(-NUM_WARM, repetitions):
        for kind in chance.sample(list(kinds), len(kinds)):
            meet()
            sent, cpu, began = sent_bytes(), time.process_time(), time.perf_counter()
            kinds[kind]()
            seconds = time.perf_counter() - began
            cpu = time.process_time() - cpu
            meet()  # when all has arrived
            if repetition >= 0:
                samples[kind].append(seconds)
                samples[f"{kind}_cpu"].append(cpu)
                samples[f"{kind}_bytes"].append(sent_bytes() - sent)
    return samples
