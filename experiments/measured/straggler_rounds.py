"""Rounds of slowed-down workers, timed in one of several processes.

A local step sleeps for a time that was drawn beforehand, then it computes. Sleeping
needs no core, so four workers can each keep their own pace on two cores. Workers do not
meet between rounds: each may run ahead as far as its strategy allows. These rounds
alternate with the same rounds without communication, which time the worker's own work.
"""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Key

from experiments.links.slowdowns import SLOWDOWNS
from experiments.measured.network_rounds import meeting, rounds
from experiments.measured.network_work import Work, sent_trees, start
from experiments.measured.network_work import loss as work_loss
from experiments.measured.turns import NUM_WARM, Samples, take_turns
from olsgd_jax import (
    exact,
    on_workers,
    send_nothing,
    to_workers,
    worker_mean,
    worker_mesh,
)
from olsgd_jax.types import Batch, ModelState, Params
from olsgd_jax.workers import batch_shardings

NUM_MEANS = 5  # timed together in every repetition


class Question(NamedTuple):
    """What the processes measure."""

    num_hosts: int
    rate: str  # each way, on every link
    slowdown: str
    strategies: Sequence[str]
    sync_period: int  # τ
    num_rounds: int  # in a row
    repetitions: int
    unit: float  # seconds that an undisturbed step sleeps
    seed: int
    width: int
    depth: int

    @property
    def name(self) -> str:
        """Its name while it runs."""
        return f"{self.num_hosts} hosts, {self.rate}, {self.slowdown}"


def sleep(seconds: Float[Array, ""]) -> Float[Array, ""]:
    """Sleeps when the compiled program runs; returns 0."""

    def now(seconds: np.ndarray) -> np.ndarray:
        time.sleep(float(seconds))
        return np.zeros_like(seconds)

    return jax.pure_callback(now, jax.ShapeDtypeStruct((), seconds.dtype), seconds)


def loss(
    params: Params, model_state: ModelState, batch: Batch, key: Key[Array, ""]
) -> tuple[Float[Array, ""], ModelState]:
    """Sleeps, then computes what `network_work` does."""
    inputs = batch["inputs"] + sleep(batch["seconds"])
    return work_loss(params, model_state, inputs, key)


def measure(question: Question) -> dict[str, Samples]:
    """Times all strategies in this process.

    Returns:
      For every strategy, repetition by repetition, the seconds of all rounds "with"
      communication and "without", of the "drawn" sleep of this worker, and of one
      "mean" alone.
    """
    mesh = worker_mesh(jax.device_count())
    size = question.sync_period, question.width, question.depth
    works = [Work(label, *size) for label in question.strategies]
    _, inputs = start(works[0], mesh)  # the same for all
    compute = SLOWDOWNS[question.slowdown](question.unit, question.unit, mesh.size)
    shape = question.num_rounds, question.sync_period, mesh.size
    chance = np.random.default_rng(question.seed)
    drawn = [compute.sample(chance, shape) for _ in range(question.repetitions)]
    batches = [[_batches(inputs, own, mesh) for own in seconds] for seconds in drawn]
    batches = NUM_WARM * [batches[0][:2]] + batches

    def each_in_turn(run: Callable[[Sequence[Batch]], None]) -> Callable[[], None]:
        series = iter(batches)
        return lambda: run(next(series))

    kinds = {}
    for work in works:
        for kind, reduction in (("with", exact()), ("without", send_nothing())):
            run = rounds(work, reduction, mesh, loss)
            kinds[f"{work.strategy} {kind}"] = each_in_turn(run)
        kinds[f"{work.strategy} mean"] = _means(work, mesh)
    samples = take_turns(kinds, question.repetitions, meeting(mesh))
    own_sleep = [float(x[..., jax.process_index()].sum()) for x in drawn]
    return {
        label: {
            "with": samples[f"{label} with"],
            "without": samples[f"{label} without"],
            "mean": [x / NUM_MEANS for x in samples[f"{label} mean"]],
            "drawn": own_sleep,
        }
        for label in question.strategies
    }


def _means(work: Work, mesh: Mesh) -> Callable[[], None]:
    average = jax.jit(on_workers(worker_mean, mesh))
    (tree, *_), _ = sent_trees(work, mesh.size)
    tree = to_workers(tree, mesh.size, mesh)

    def run_all() -> None:
        for _ in range(NUM_MEANS):
            jax.block_until_ready(average(tree))

    return run_all


def _batches(inputs: Batch, seconds: np.ndarray, mesh: Mesh) -> Batch:
    """Adds the sleep of every worker and step to its inputs."""
    own = np.asarray(seconds.T, np.float32)
    sharding = batch_shardings(own, mesh)
    placed = jax.make_array_from_callback(own.shape, sharding, own.__getitem__)
    return {"inputs": inputs, "seconds": placed}
