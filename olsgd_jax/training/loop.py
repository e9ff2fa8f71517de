"""train: a config becomes a training run, and the run its records."""

import functools
from collections.abc import Callable, Iterator
from typing import overload

import jax

from olsgd_jax.round.consensus import check_kept
from olsgd_jax.round.local_steps import WorkerState
from olsgd_jax.training.checkpoints import Checkpoints, Due
from olsgd_jax.training.cluster.preemption import PreemptedError
from olsgd_jax.training.components import Components, build
from olsgd_jax.training.config import Config
from olsgd_jax.training.describe import describe
from olsgd_jax.training.records.types import Entry, Record, Rollback
from olsgd_jax.training.recovery.resume import Progress, restore, save
from olsgd_jax.training.recovery.rollback import Rollbacks, run_with_rollbacks
from olsgd_jax.training.rounds import Pause, run_rounds
from olsgd_jax.training.stops import Todo, advanced, make_record, what_to_do


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
    rollbacks: Rollbacks | None = None,
) -> Iterator[Entry]: ...


def train(
    config: Config,
    components: Components | None = None,
    *,
    checkpoints: Checkpoints | None = None,
    due: Due | None = None,
    preempted: Callable[[], bool] | None = None,
    rollbacks: Rollbacks | None = None,
) -> Iterator[Entry]:
    """Trains as a config says.

    Whatever is wrong with the config is raised by the call; the training itself goes
    only as far as records are asked for.

    Args:
      config: of the run.
      components: what `build` made of it; built here by default.
      checkpoints: where the run is kept. If it holds one of this run, training goes on
        from there, to the same numbers as if it had never stopped; with another
        number of workers as `resize` says.
      due: says when a checkpoint is due; by default after the last round only.
      preempted: asked after every round but the last whether to stop there, as
        `Preemption` says it; in several processes it has to say the same in all.
      rollbacks: how a run that diverges goes on; by default it does not.

    Returns:
      A record of every `evaluate_every` rounds, and one of the last round; those of
      before a run was stopped come first. A `Rollback` where the run went back, and
      a `Resumed` where it went on with other workers, devices, processes or mapping.

    Raises:
      FloatingPointError: when a loss or a parameter is not finite, while records are
        asked for. No checkpoint is made of such a state.
      PreemptedError: when the run was asked to stop, while records are asked for, and
        a checkpoint of it is written.

    >>> from olsgd_jax.training import Config, train
    >>> [record.step for record in train(Config(num_rounds=3, evaluate_every=2))]
    [8, 12]
    """
    components = components or build(config)
    state, progress = restore(checkpoints, config, components)
    for which in config.evaluate:
        check_kept("evaluate", which, state, components.strategy)
    if checkpoints is not None:
        due = due or Due()
    went_back = any(isinstance(row, Rollback) for row in progress.records)
    if went_back and rollbacks is None:
        raise ValueError(
            "rollbacks must be given for a run that has gone back, got None; "
            "Rollbacks(times=0) lets it go on, and back no more"
        )
    run = functools.partial(
        _records, asked=config, checkpoints=checkpoints, due=due, preempted=preempted
    )
    allowed = rollbacks or Rollbacks(times=0)
    return run_with_rollbacks(
        run, config, components, state, progress, checkpoints, allowed
    )


def _records(
    config: Config,
    components: Components,
    state: WorkerState,
    progress: Progress,
    *,
    asked: Config,  # before it went back
    checkpoints: Checkpoints | None,
    due: Due | None,
    preempted: Callable[[], bool] | None,
) -> Iterator[Record]:
    if due is not None:
        due.restart(progress.round)
    bytes_per_step = describe(config, components).bytes_per_round / config.sync_period
    todo = Todo()

    def what_at(number: int) -> Pause:
        nonlocal todo
        todo = what_to_do(config, number, due, preempted)
        if not any(todo):
            return "none"
        # Processes that look through a state meet for it, as they do in a round.
        alone = jax.process_count() == 1
        return "go_on" if alone and todo == Todo(save=True) else "wait"

    for stop in run_rounds(config, components, state, progress.round, what_at):
        progress = advanced(config, components, progress, stop)
        if todo.record:
            record = make_record(
                config, components, stop.state, progress, bytes_per_step
            )
            records = *progress.records, record
            progress = progress._replace(losses=(), records=records)
            yield record
        if checkpoints is not None and due is not None and todo.save:
            save(checkpoints, asked, stop.state, progress)
            due.restart(stop.round)
        if todo.end:
            if checkpoints is not None:
                checkpoints.wait()
            raise PreemptedError(stop.round, is_saved=checkpoints is not None)
