"""Rounds with and without communication, timed in one of several processes.

In the same processes, rounds that communicate alternate with rounds of the same work
that do not, and with the means alone. Each starts on all hosts together, after a mean
of one number.
"""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from experiments.links.gloo import ring_bytes
from experiments.measured.network_work import (
    Work,
    loss,
    make_run,
    reduction_of,
    sent_trees,
    silenced,
    start,
    worker_round,
)
from experiments.measured.turns import Samples, take_turns
from experiments.processes.host_processes import sent_bytes
from olsgd_jax import (
    Reduction,
    on_workers,
    payload_bytes,
    to_workers,
    worker_mean,
    worker_mesh,
)
from olsgd_jax.types import ArrayTree, Batch, Loss


def measure(work: Work, repetitions: int) -> Samples:
    """Times rounds "with" and "without" communication, the "mean", and "one" number."""
    mesh = worker_mesh(jax.device_count())
    meet = meeting(mesh)
    kinds = {
        "with": rounds(work, reduction_of(work), mesh),
        "without": rounds(work, silenced(work, mesh.size), mesh),
        "mean": means_alone(work, mesh),
        "one": meet,
    }
    return take_turns(kinds, repetitions, meet, sent_bytes)


def rounds(
    work: Work, reduction: Reduction, mesh: Mesh, loss: Loss = loss
) -> Callable[..., None]:
    """Makes a function that runs a round for each of some batches, and waits for it.

    Called without batches, it runs one round on those of `start`.
    """
    run = make_run(work, reduction, mesh, loss)
    state, batches = start(work, mesh, reduction)

    def run_all(series: Sequence[Batch] = (batches,)) -> None:
        nonlocal state  # a round may donate the one it was given
        for own in series:
            state, _ = jax.block_until_ready(run(state, own))

    return run_all


def means_alone(work: Work, mesh: Mesh) -> Callable[[], None]:
    """Makes a function that computes the means of a round, and nothing else."""
    trees, reduction = sent_trees(work, mesh.size)

    def one_mean(message: ArrayTree) -> ArrayTree:
        return reduction.reduce(message, reduction.init(message))[0]

    average = jax.jit(on_workers(one_mean, mesh))
    sent = [to_workers(x, mesh.size, mesh) for x in trees]

    def run_all() -> None:
        for tree in sent:
            jax.block_until_ready(average(tree))

    return run_all


def meeting(mesh: Mesh) -> Callable[[], None]:
    """Makes a function that returns when all processes have called it."""
    average = jax.jit(on_workers(worker_mean, mesh))
    one = to_workers(jnp.ones(()), mesh.size, mesh)
    return lambda: jax.block_until_ready(average(one))


def sizes(work: Work) -> dict[str, float]:
    """Computes what a worker sends in a round: its payload, and bytes on the wire."""
    mesh = worker_mesh(jax.device_count())
    own = reduction_of(work)
    code, started = worker_round(work, own, mesh), start(work, mesh, own)
    trees, reduction = sent_trees(work, mesh.size)
    arrays = jax.tree.leaves(trees)
    expected = sum(ring_bytes(reduction.payload(x), mesh.size) for x in arrays)
    return {
        "payload_bytes": payload_bytes(code, *started, num_workers=mesh.size),
        "expected_bytes": expected,
    }
