"""train: runs the rounds of a config, and yields records.

One loop runs the rounds. Between two of them it may stop to make a record, to save a
checkpoint or to end. A run that diverges goes back to its last checkpoint, if it may,
and the same loop continues from there.
"""

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple, overload

import jax
import jax.numpy as jnp
import numpy as np

from olsgd_jax.drivers.make_round import make_round
from olsgd_jax.round.local_steps import WorkerState
from olsgd_jax.training.checkpoints import Checkpoints, Due
from olsgd_jax.training.cluster.preemption import PreemptedError
from olsgd_jax.training.components import Components, build
from olsgd_jax.training.config import Config
from olsgd_jax.training.describe import describe
from olsgd_jax.training.records.measure import make_record
from olsgd_jax.training.records.types import Entry, Record
from olsgd_jax.training.recovery.divergence import (
    DivergedError,
    check_losses,
    check_state_finite,
)
from olsgd_jax.training.recovery.resume import Progress, restore, save
from olsgd_jax.training.recovery.rollback import (
    RollbackPolicy,
    at_current_rate,
    go_back,
    rollbacks_in,
)
from olsgd_jax.workers.sharding import to_host


@overload
def train(
    config: Config,
    components: Components | None = None,
    *,
    checkpoints: None = None,
    due: Due | None = None,
    preempted: Callable[[], bool] | None = None,
) -> Iterator[Record]: ...


@overload
def train(
    config: Config,
    components: Components | None = None,
    *,
    checkpoints: Checkpoints | None = None,
    due: Due | None = None,
    preempted: Callable[[], bool] | None = None,
    rollbacks: RollbackPolicy | None = None,
) -> Iterator[Entry]: ...


def train(
    config: Config,
    components: Components | None = None,
    *,
    checkpoints: Checkpoints | None = None,
    due: Due | None = None,
    preempted: Callable[[], bool] | None = None,
    rollbacks: RollbackPolicy | None = None,
) -> Iterator[Entry]:
    """Trains as a config says.

    The call raises if anything is wrong with the config. Training itself runs as the
    records are iterated over.

    Args:
      config: options of the run.
      components: what `build` made of the config; built here by default.
      checkpoints: where the run is saved. If there is a checkpoint of this run,
        training resumes from it, with the same results as if it had never stopped. The
        number of workers may change; see `elastic`.
      due: says when a checkpoint is due; by default after the last round only.
      preempted: called after every round but the last; True stops the run there, as
        `Preemption` does. It must return the same value in all processes.
      rollbacks: how a run that diverges goes back; by default it does not.

    Returns:
      A record after every `evaluate_every` rounds, and one after the last round. A
      resumed run yields its earlier records first. There is a `Rollback` where the run
      went back, and a `Resumed` where it resumed with other workers, devices, processes
      or another mapping.

    Raises:
      FloatingPointError: during iteration, if a loss or a parameter is not finite. Such
        a state is never saved.
      PreemptedError: during iteration, if the run was asked to stop. It has been saved,
        if there are checkpoints.

    >>> from olsgd_jax.training import Config, train
    >>> [record.step for record in train(Config(num_rounds=3, evaluate_every=2))]
    [8, 12]
    """
    components = components or build(config)
    state, progress = restore(checkpoints, config, components)
    if rollbacks_in(progress.records) and rollbacks is None:
        raise ValueError(
            "rollbacks must be given to resume a run that was rolled back, got None; "
            "RollbackPolicy(times=0) resumes it without further rollbacks"
        )
    if checkpoints is not None:
        due = due or Due()
    return _run(
        config,
        components,
        state,
        progress,
        checkpoints,
        due,
        preempted,
        rollbacks or RollbackPolicy(times=0),
    )


class Todo(NamedTuple):
    """What to do between two rounds."""

    record: bool = False
    save: bool = False
    end: bool = False


class Stop(NamedTuple):
    """A pause between two rounds, in which something is to be done."""

    round: int  # rounds so far
    state: WorkerState
    losses: list[jax.Array]  # of each round since the last stop, by worker and step
    seconds: float  # spent in these rounds
    is_copy: bool  # whether the state is a copy, so that the next round can start


def _run(
    config: Config,
    components: Components,
    state: WorkerState,
    progress: Progress,
    checkpoints: Checkpoints | None,
    due: Due | None,
    preempted: Callable[[], bool] | None,
    rollbacks: RollbackPolicy,
) -> Iterator[Entry]:
    """Runs the remaining rounds; rounds that a rollback undid run again."""

    def keep(stop: Stop, progress: Progress) -> None:
        if checkpoints is not None and due is not None:
            save(checkpoints, config, stop.state, progress)
            due.restart(stop.round)

    yield from progress.records
    while progress.round < config.num_rounds:
        now, own = at_current_rate(config, components, progress)
        num_bytes = describe(now, own).bytes_per_round / config.sync_period
        if due is not None:
            due.restart(progress.round)
        rounds = _make_rounds(now, own, progress.round)
        for number, overlap_round in rounds.items():
            # Discarded: this keeps compilation out of the measured time.
            jax.block_until_ready(overlap_round(_copied(state), own.batches(number)))
        batches, before, held = own.batches(progress.round), (), None
        began, losses = time.perf_counter(), []
        try:
            for number in range(progress.round, config.num_rounds):
                overlap_round = rounds.get(number, rounds[1])
                state, result = overlap_round(state, batches)
                # Losses stay on the devices, so that no round waits for the host.
                losses.append(result.loss)
                if held is not None:
                    progress = advanced(now, own, progress, held)
                    keep(held, progress)
                    held = None
                # Two rounds in flight keep devices busy. More would hold more batches,
                # and dozens can deadlock if the devices share a CPU.
                jax.block_until_ready(before)
                before = result.loss
                # Before a stop, so that the devices need not wait for batches after it.
                if number + 1 < config.num_rounds:
                    batches = own.batches(number + 1)
                todo = what_to_do(config, number + 1, due, preempted)
                if not any(todo):
                    continue
                stop = _stop(todo, number + 1, state, losses, began)
                began, losses = time.perf_counter(), []
                if stop.is_copy:
                    held = stop
                    continue
                progress = advanced(now, own, progress, stop)
                if todo.record:
                    record = make_record(now, own, state, progress, num_bytes)
                    records = *progress.records, record
                    progress = progress._replace(losses=(), records=records)
                    yield record
                if todo.save:
                    keep(stop, progress)
                if todo.end:
                    if checkpoints is not None:
                        checkpoints.wait()
                    raise PreemptedError(stop.round, is_saved=checkpoints is not None)
                began = time.perf_counter()
        except DivergedError as error:
            history = progress.records
            if len(rollbacks_in(history)) >= rollbacks.times:
                raise
            state, progress = go_back(
                error.round, config, components, checkpoints, history, rollbacks
            )
            yield from progress.records[len(history) :]


def what_to_do(
    config: Config,
    number: int,
    due: Due | None,
    preempted: Callable[[], bool] | None,
) -> Todo:
    """Says what to do after so many rounds, the same in all processes.

    >>> from olsgd_jax.training import Config
    >>> what_to_do(Config(evaluate_every=3), number=4, due=None, preempted=None)
    Todo(record=False, save=False, end=False)
    """
    if number == config.num_rounds:
        return Todo(record=True, save=True)
    end = preempted is not None and preempted()
    save = end or (due is not None and due(number))
    return Todo(number % config.evaluate_every == 0, save, end)


def _stop(
    todo: Todo, number: int, state: WorkerState, losses: list[jax.Array], began: float
) -> Stop:
    """Waits for the state, or copies it if it only has to be saved."""
    # Several processes communicate to check a state, as they do in a round.
    is_copy = todo == Todo(save=True) and jax.process_count() == 1
    if is_copy:
        state = _copied(state)  # the next round overwrites it
    else:
        jax.block_until_ready(state)
    return Stop(number, state, losses, time.perf_counter() - began, is_copy)


@jax.jit
def _copied(state: WorkerState) -> WorkerState:
    return jax.tree.map(jnp.copy, state)


def _make_rounds(
    config: Config, components: Components, first: int
) -> dict[int, Callable]:
    """Builds round 1, which stands for all others, and round 0 if it is longer."""
    numbers = (0, 1) if config.long_first_round and first == 0 else (1,)
    return {
        number: make_round(
            components.task.loss,
            components.optimizer,
            components.strategy,
            sync_period=config.num_steps(number + 1) - config.num_steps(number),
            mesh=components.mesh,
            mapping=config.mapping,
            model_state_policy=config.model_state_policy,
            reduction=components.reduction,
        )
        for number in numbers
    }


def advanced(
    config: Config, components: Components, progress: Progress, stop: Stop
) -> Progress:
    """Adds the rounds up to a stop; raises if a number is not finite."""
    losses = [to_host(loss) for loss in stop.losses]
    means = tuple(float(loss.mean(dtype=np.float64)) for loss in losses)
    first, last_loss = stop.round + 1 - len(means), progress.last_loss
    check_losses(losses, means, first, config, last_loss)
    check_state_finite(stop.state, stop.round, config, means[-1], components.mesh)
    num_steps = config.num_steps(stop.round) - config.num_steps(progress.round)
    return progress._replace(
        round=stop.round,
        examples=progress.examples + num_steps * config.num_workers * config.batch_size,
        seconds=progress.seconds + stop.seconds,
        losses=(*progress.losses, *means),
        last_loss=means[-1],
    )
