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
from jax.sharding import Mesh

from experiments.links.gloo import ring_bytes
from experiments.measured.network_work import (
    Work,
    make_run,
    sent_trees,
    start,
    worker_round,
)
from experiments.processes.host_processes import sent_bytes
from olsgd_jax import (
    Reduction,
    exact,
    on_workers,
    payload_bytes,
    send_nothing,
    to_workers,
    worker_mean,
    worker_mesh,
)

NUM_WARM = 2  # rounds of every kind that compile and settle

Samples = dict[str, list[float]]
"""Seconds of rounds "with" and "without" communication, of the "mean" alone, and of a
mean of "one" number. Under the same names with "_cpu" behind them: CPU seconds of this
process; with "_bytes": what its host sent, the mean of one number included."""


def measure(work: Work, repetitions: int) -> Samples:
    """Times rounds of every kind in this process."""
    mesh = worker_mesh(jax.device_count())
    meet = meeting(mesh)
    kinds = {
        "with": rounds(work, exact(), mesh),
        "without": rounds(work, send_nothing(), mesh),
        "mean": means_alone(work, mesh),
        "one": meet,
    }
    return take_turns(kinds, repetitions, meet, sent_bytes)


def rounds(work: Work, reduction: Reduction, mesh: Mesh) -> Callable[[], None]:
    """Gives a function that runs the next round, and waits for it."""
    run = make_run(work, reduction, mesh)
    state, batches = start(work, mesh)

    def run_one() -> None:
        nonlocal state  # a round may donate the one it was given
        state, _ = jax.block_until_ready(run(state, batches))

    return run_one


def means_alone(work: Work, mesh: Mesh) -> Callable[[], None]:
    """Gives a function that makes the means of a round, and nothing else."""
    average = jax.jit(on_workers(worker_mean, mesh))
    sent = [to_workers(x, mesh.size, mesh) for x in sent_trees(work, mesh.size)]

    def run_all() -> None:
        for tree in sent:
            jax.block_until_ready(average(tree))

    return run_all


def meeting(mesh: Mesh) -> Callable[[], None]:
    """Gives a function that returns when all processes have called it."""
    average = jax.jit(on_workers(worker_mean, mesh))
    one = to_workers(jnp.ones(()), mesh.size, mesh)
    return lambda: jax.block_until_ready(average(one))


def sizes(work: Work) -> dict[str, float]:
    """Says what a worker sends in a round, by its program and by the transport's."""
    mesh = worker_mesh(jax.device_count())
    code = worker_round(work, exact(), mesh)
    arrays = jax.tree.leaves(sent_trees(work, mesh.size))
    return {
        "payload_bytes": payload_bytes(code, *start(work, mesh), num_workers=mesh.size),
        "expected_bytes": sum(ring_bytes(x.nbytes, mesh.size) for x in arrays),
    }


def take_turns(
    kinds: Mapping[str, Callable[[], None]],
    repetitions: int,
    meet: Callable[[], None],
    sent: Callable[[], int] | None = None,
    watch: Callable[[int, int], None] = lambda done, num: None,
    num_warm: int = NUM_WARM,
) -> Samples:
    """Runs each kind once, all of them in another order, and so on.

    Args:
      kinds: what is timed, by name.
      repetitions: how often each is timed.
      meet: waits for the other processes; called before and after each.
      sent: gives the bytes that this host has sent so far; None: not counted.
      watch: called with how many of how many calls are done.
      num_warm: how often each is called before that, to compile and settle.
    """
    units = ("", "_cpu") if sent is None else ("", "_cpu", "_bytes")
    samples: Samples = {f"{kind}{unit}": [] for unit in units for kind in kinds}
    chance = random.Random(0)  # the same order in all processes
    turns = [
        (repetition, kind)
        for repetition in range(-num_warm, repetitions)
        for kind in chance.sample(list(kinds), len(kinds))
    ]
    for done, (repetition, kind) in enumerate(turns):
        watch(done, len(turns))
        meet()
        before = sent() if sent else 0
        cpu, began = time.process_time(), time.perf_counter()
        kinds[kind]()
        seconds = time.perf_counter() - began
        cpu = time.process_time() - cpu
        meet()  # when all has arrived
        if repetition >= 0:
            samples[kind].append(seconds)
            samples[f"{kind}_cpu"].append(cpu)
            if sent:
                samples[f"{kind}_bytes"].append(sent() - before)
    return samples
