"""Rounds of workers that are slowed down, timed in one of several processes.

A local step sleeps for a time that was drawn beforehand, then it computes. Sleeping
needs no core, so that four workers have their own pace on two cores. Rounds follow each
other without a meeting between them: a worker may run ahead as far as its strategy lets
it. The same rounds without communication take turns with them; what these take is the
worker's own work.
"""

import random
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Key

from experiments.links.slowdowns import SLOWDOWNS
from experiments.measured.network_work import Work, make_run, sent_trees, start
from experiments.measured.network_work import loss as work_loss
from olsgd_jax import (
    Reduction,
    exact,
    on_workers,
    send_nothing,
    to_workers,
    worker_mean,
    worker_mesh,
)
from olsgd_jax.types import Batch, ModelState, Params
from olsgd_jax.workers import batch_shardings

NUM_MEANS = 5  # alone, in every repetition


class Question(NamedTuple):
    """What the processes measure."""

    num_hosts: int
    rate: str  # of every link, each way
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
        """What it is called while it runs."""
        return f"{self.num_hosts} hosts, {self.rate}, {self.slowdown}"


def sleep(seconds: Float[Array, ""]) -> Float[Array, ""]:
    """Sleeps when the program comes here; gives 0."""

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


def measure(question: Question) -> dict[str, dict[str, list[float]]]:
    """Times all strategies in this process.

    Returns:
      For every strategy, repetition by repetition, the seconds of all rounds "with"
      communication and "without", of the "drawn" sleep of this worker, and of one
      "mean" alone.
    """
    mesh = worker_mesh(jax.device_count())
    average = jax.jit(on_workers(worker_mean, mesh))
    one = to_workers(jnp.ones(()), mesh.size, mesh)

    def meet() -> None:
        jax.block_until_ready(average(one))

    kinds, samples = {}, {}
    size = question.sync_period, question.width, question.depth
    works = {label: Work(label, *size) for label in question.strategies}
    for label, work in works.items():
        kinds[label, "with"] = _rounds(work, exact(), mesh)
        kinds[label, "without"] = _rounds(work, send_nothing(), mesh)
        kinds[label, "mean"] = _means(work, average, mesh)
        samples[label] = {x: [] for x in ("with", "without", "mean", "drawn")}
    _, inputs = start(works[question.strategies[0]], mesh)  # the same for all
    draw = np.random.default_rng(question.seed)
    order = random.Random(question.seed)  # the same in all processes
    compute = SLOWDOWNS[question.slowdown](question.unit, question.unit, mesh.size)
    shape = question.num_rounds, question.sync_period, mesh.size
    for repetition in range(-1, question.repetitions):  # the first one compiles
        seconds = compute.sample(draw, shape)
        batches = [_batches(inputs, own, mesh) for own in seconds]
        for label, kind in order.sample(list(kinds), len(kinds)):
            meet()
            began = time.perf_counter()
            kinds[label, kind](batches if repetition >= 0 else batches[:2])
            taken = time.perf_counter() - began
            if repetition >= 0:
                samples[label][kind].append(
                    taken / NUM_MEANS if kind == "mean" else taken
                )
        if repetition >= 0:
            own = float(seconds[..., jax.process_index()].sum())
            for label in question.strategies:
                samples[label]["drawn"].append(own)
    return samples


def _rounds(
    work: Work, reduction: Reduction, mesh: Mesh
) -> Callable[[Sequence[Batch]], None]:
    run = make_run(work, reduction, mesh, loss)
    state, _ = start(work, mesh)

    def run_all(batches: Sequence[Batch]) -> None:
        nonlocal state  # a round may donate the one it was given
        for own in batches:
            state, _ = jax.block_until_ready(run(state, own))

    return run_all


def _means(work: Work, average: Callable, mesh: Mesh) -> Callable:
    tree = to_workers(sent_trees(work, mesh.size)[0], mesh.size, mesh)

    def run_all(batches: Sequence[Batch]) -> None:
        del batches
        for _ in range(NUM_MEANS):
            jax.block_until_ready(average(tree))

    return run_all


def _batches(inputs: Batch, seconds: np.ndarray, mesh: Mesh) -> Batch:
    """Puts the sleep of every worker and step beside its inputs."""
    own = np.asarray(seconds.T, np.float32)
    sharding = batch_shardings(own, mesh)
    placed = jax.make_array_from_callback(own.shape, sharding, own.__getitem__)
    return {"inputs": inputs, "seconds": placed}
