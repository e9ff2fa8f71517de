"""The rounds of a run, one after the other."""

import time
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from olsgd_jax.drivers.make_round import make_round
from olsgd_jax.round.local_steps import WorkerState
from olsgd_jax.training.components import Components
from olsgd_jax.training.config import Config

Pause = Literal["none", "go_on", "wait"]
"""Whether rounds stop, and if so, whether they wait until all is done there."""


class Stop(NamedTuple):
    """A place between two rounds, and what was measured since the one before."""

    state: WorkerState
    round: int  # rounds so far
    losses: list[jax.Array]  # of each round since then, by worker and local step
    seconds: float  # of all of them


def run_rounds(
    config: Config,
    components: Components,
    state: WorkerState,
    first: int,
    what_at: Callable[[int], Pause],
) -> Iterator[Stop]:
    """Trains, and stops wherever there is something to do.

    Args:
      config: of the run.
      components: of it.
      state: to begin with.
      first: how many rounds that state has behind it.
      what_at: rounds so far -> how to stop there. "go_on" hands out a copy of the
        state, with the next round under way; that round is not the last.
    """
    if first >= config.num_rounds:
        return
    overlap_round = first_round = _compiled_round(config, components, state, number=1)
    if config.long_first_round and first == 0:
        first_round = _compiled_round(config, components, state, number=0)
    batches = components.batches(first)
    began, losses, before, held = time.perf_counter(), [], (), None
    for number in range(first, config.num_rounds):
        run = overlap_round if number else first_round
        # Losses stay on the devices, so that rounds need not wait for the host.
        state, record = run(state, batches)
        losses.append(record.loss)
        if held is not None:
            yield held
            held = None
        # Two rounds under way keep devices busy. More would hold more batches, and
        # dozens can block each other for good where devices share a CPU.
        jax.block_until_ready(before)
        before = record.loss
        # Before a stop, so that the devices need not wait for them after it.
        if number + 1 < config.num_rounds:
            batches = components.batches(number + 1)
        match what_at(number + 1):
            case "go_on":
                now = time.perf_counter()
                # A copy, since the next round overwrites the state.
                held = Stop(_copied(state), number + 1, losses, now - began)
                began, losses = now, []
            case "wait":
                jax.block_until_ready(state)
                yield Stop(state, number + 1, losses, time.perf_counter() - began)
                began, losses = time.perf_counter(), []


@jax.jit
def _copied(state: WorkerState) -> WorkerState:
    return jax.tree.map(jnp.copy, state)


def _compiled_round(
    config: Config, components: Components, state: WorkerState, number: int
) -> Callable:
    """Builds a round like the one of that number, and runs it on a copy of the state.

    What that gives is thrown away: it keeps compilation out of the time.
    """
    batches = components.batches(number)
    overlap_round = make_round(
        components.task.loss,
        components.optimizer,
        components.strategy,
        sync_period=batches["labels"].shape[1],
        mesh=components.mesh,
        mapping=config.mapping,
        model_state_policy=config.model_state_policy,
    )
    jax.block_until_ready(overlap_round(_copied(state), batches))
    return overlap_round
