"""train: a config becomes a training run, and the run its records."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from olsgd_jax.build import Parts, build
from olsgd_jax.checkpoints import Checkpoints, Due
from olsgd_jax.config import Config
from olsgd_jax.consensus import model_of
from olsgd_jax.describe import describe
from olsgd_jax.local import WorkerState
from olsgd_jax.preemption import PreemptedError
from olsgd_jax.record import Record
from olsgd_jax.resume import Progress, restore, save
from olsgd_jax.rounds import run_rounds
from olsgd_jax.stops import advanced, make_record


def train(
    config: Config,
    parts: Parts | None = None,
    *,
    checkpoints: Checkpoints | None = None,
    due: Due | None = None,
    preempted: Callable[[], bool] | None = None,
) -> Iterator[Record]:
    """Trains as a config says.

    Whatever is wrong with the config is raised by the call; the training itself goes
    only as far as records are asked for.

    Args:
      config: of the run.
      parts: what `build` made of it; built here by default.
      checkpoints: where the run is kept. If it holds one of this run, training goes on
        from there, to the same numbers as if it had never stopped.
      due: says when a checkpoint is due; by default after the last round only.
      preempted: asked after every round but the last whether to stop there, as
        `Preemption` says it; in several processes it has to say the same in all.

    Returns:
      A record of every `evaluate_every` rounds, and one of the last round; those of
      before a run was stopped come first.

    Raises:
      FloatingPointError: when a loss or a parameter is not finite, while records are
        asked for. No checkpoint is made of such a state.
      PreemptedError: when the run was asked to stop, while records are asked for, and
        a checkpoint of it is written.

    >>> from olsgd_jax import Config, train
    >>> [record.step for record in train(Config(num_rounds=3, evaluate_every=2))]
    [8, 12]
    """
    parts = parts or build(config)
    state, progress = parts.init(), Progress()
    for which in config.evaluate:  # raises where the strategy keeps no such model
        model_of(state, parts.strategy, which, parts.mesh)
    if checkpoints is not None:
        state, progress = restore(checkpoints, config, state)
        due = due or Due()
        due.restart(progress.round)
    return _records(config, parts, state, progress, checkpoints, due, preempted)


def _records(
    config: Config,
    parts: Parts,
    state: WorkerState,
    progress: Progress,
    checkpoints: Checkpoints | None,
    due: Due | None,
    preempted: Callable[[], bool] | None,
) -> Iterator[Record]:
    yield from progress.records
    bytes_per_step = describe(config, parts).bytes_per_round / config.sync_period
    todo = _Todo()

    def is_stop(number: int) -> bool:
        nonlocal todo
        todo = _todo(config, number, due, preempted)
        return any(todo)

    for stop in run_rounds(config, parts, state, progress.round, is_stop):
        progress = advanced(config, parts, progress, stop)
        if todo.record:
            record = make_record(config, parts, stop.state, progress, bytes_per_step)
            records = *progress.records, record
            progress = progress._replace(losses=(), records=records)
            yield record
        if checkpoints is not None and due is not None and todo.save:
            save(checkpoints, config, stop.state, progress)
            due.restart(stop.round)
        if todo.end:
            if checkpoints is not None:
                checkpoints.wait()
            raise PreemptedError(stop.round, is_saved=checkpoints is not None)


class _Todo(NamedTuple):
    """What is to be done between two rounds."""

    record: bool = False
    save: bool = False
    end: bool = False


def _todo(
    config: Config,
    number: int,
    due: Due | None,
    preempted: Callable[[], bool] | None,
) -> _Todo:
    """Says what is to be done after so many rounds, the same in all processes."""
    if number == config.num_rounds:
        return _Todo(record=True, save=True)
    end = preempted is not None and preempted()
    save = end or (due is not None and due(number))
    return _Todo(number % config.evaluate_every == 0, save, end)
