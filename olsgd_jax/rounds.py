"""The rounds of a run, one after the other."""

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp

from olsgd_jax.build import Parts
from olsgd_jax.config import Config
from olsgd_jax.drivers.make_round import make_round
from olsgd_jax.local import WorkerState


class Stop(NamedTuple):
    """A place between two rounds, and what was measured since the one before."""

    state: WorkerState
    round: int  # rounds so far
    losses: list[jax.Array]  # of each round since then, by worker and local step
    seconds: float  # of all of them


def run_rounds(
    config: Config,
    parts: Parts,
    state: WorkerState,
    first: int,
    is_stop: Callable[[int], bool],
) -> Iterator[Stop]:
    """Trains, and stops wherever there is something to do.

    Args:
      config: of the run.
      parts: of it.
      state: to begin with.
      first: how many rounds that state has behind it.
      is_stop: rounds so far -> whether to stop there.
    """
    if first >= config.num_rounds:
        return
    overlap_round = first_round = _compiled_round(config, parts, state, number=1)
    if config.long_first_round and first == 0:
        first_round = _compiled_round(config, parts, state, number=0)
    batches = parts.batches(first)
    began, losses = time.perf_counter(), []
    for number in range(first, config.num_rounds):
        run = overlap_round if number else first_round
        # Losses stay on the devices, so that rounds need not wait for the host.
        state, record = run(state, batches)
        losses.append(record.loss)
        # Two rounds under way keep devices busy. More would hold more batches, and
        # dozens can block each other for good where devices share a CPU.
        jax.block_until_ready(losses[-2:][0])
        # Before a stop, so that the devices need not wait for them after it.
        if number + 1 < config.num_rounds:
            batches = parts.batches(number + 1)
        if is_stop(number + 1):
            jax.block_until_ready(state)
            seconds = time.perf_counter() - began
            yield Stop(state, number + 1, losses, seconds)
            began, losses = time.perf_counter(), []


def _compiled_round(
    config: Config, parts: Parts, state: WorkerState, number: int
) -> Callable:
    """Builds a round like the one of that number, and runs it on a copy of the state.

    What that gives is thrown away: it keeps compilation out of the time.
    """
    batches = parts.batches(number)
    overlap_round = make_round(
        parts.task.loss,
        parts.optimizer,
        parts.strategy,
        sync_period=batches["labels"].shape[1],
        mesh=parts.mesh,
        mapping=config.mapping,
        model_state_policy=config.model_state_policy,
    )
    jax.block_until_ready(overlap_round(jax.tree.map(jnp.copy, state), batches))
    return overlap_round
