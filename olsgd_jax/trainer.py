"""train: a config becomes a training run, and the run its records."""

import math
from collections.abc import Iterator

import jax.numpy as jnp

from olsgd_jax.build import Parts, build
from olsgd_jax.checkpoints import Checkpoints, Due
from olsgd_jax.config import Config
from olsgd_jax.consensus import mean_over_workers, model_of, spread
from olsgd_jax.describe import describe
from olsgd_jax.divergence import check_losses, check_state_finite, diverged
from olsgd_jax.evaluate import Evaluation, evaluate
from olsgd_jax.local import WorkerState
from olsgd_jax.record import Record
from olsgd_jax.resume import Progress, restore, save
from olsgd_jax.rounds import Stop, run_rounds
from olsgd_jax.types import EvaluatedModel


def train(
    config: Config,
    parts: Parts | None = None,
    *,
    checkpoints: Checkpoints | None = None,
    due: Due | None = None,
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

    Returns:
      A record of every `evaluate_every` rounds, and one of the last round; those of
      before a run was stopped come first.

    Raises:
      FloatingPointError: when a loss or a parameter is not finite, while records are
        asked for. No checkpoint is made of such a state.

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
    return _records(config, parts, state, progress, checkpoints, due)


def _records(
    config: Config,
    parts: Parts,
    state: WorkerState,
    progress: Progress,
    checkpoints: Checkpoints | None,
    due: Due | None,
) -> Iterator[Record]:
    yield from progress.records
    bytes_per_step = describe(config, parts).bytes_per_round / config.sync_period

    def is_record_due(number: int) -> bool:
        return number % config.evaluate_every == 0 or number == config.num_rounds

    save_at = 0  # the round that is saved next, once it is known

    def is_stop(number: int) -> bool:
        nonlocal save_at
        if due is not None and (number == config.num_rounds or due(number)):
            save_at = number
        return is_record_due(number) or save_at == number

    for stop in run_rounds(config, parts, state, progress.round, is_stop):
        progress = _advanced(config, parts, progress, stop)
        if is_record_due(stop.round):
            record = _record(config, parts, stop.state, progress, bytes_per_step)
            records = *progress.records, record
            progress = progress._replace(losses=(), records=records)
            yield record
        if checkpoints is not None and due is not None and save_at == stop.round:
            last_loss = progress.last_loss
            check_state_finite(stop.state, stop.round, config, last_loss, parts.mesh)
            save(checkpoints, config, stop.state, progress)
            due.restart(stop.round)


def _record(
    config: Config,
    parts: Parts,
    state: WorkerState,
    progress: Progress,
    bytes_per_step: float,
) -> Record:
    tests = {which: _test(parts, state, which) for which in config.evaluate}
    for test in tests.values():
        if not math.isfinite(test.loss):
            raise diverged(
                "test_loss", test.loss, progress.round, config, progress.last_loss
            )
    step = progress.round * config.sync_period + config.long_first_round
    return Record(
        round=progress.round,
        step=step,
        examples=step * config.num_workers * config.batch_size,
        learning_rate=float(jnp.asarray(parts.schedule(step - 1))),
        train_loss=sum(progress.losses) / len(progress.losses),
        tests=tests,
        spread=spread(state, parts.mesh),
        bytes_per_step=bytes_per_step,
        seconds=progress.seconds,
    )


def _test(parts: Parts, state: WorkerState, which: EvaluatedModel) -> Evaluation:
    model = model_of(state, parts.strategy, which, parts.mesh)
    return evaluate(
        parts.task, *model, parts.dataset.test_inputs, parts.dataset.test_labels
    )


def _advanced(config: Config, parts: Parts, progress: Progress, stop: Stop) -> Progress:
    """Adds the rounds up to a stop."""
    # One by one: a program of all of them would be compiled for every number of rounds.
    means = tuple(
        float(mean_over_workers(loss, parts.mesh).mean()) for loss in stop.losses
    )
    first, last_loss = stop.round + 1 - len(means), progress.last_loss
    check_losses(stop.losses, means, first, config, last_loss, parts.mesh)
    return progress._replace(
        round=stop.round,
        seconds=progress.seconds + stop.seconds,
        losses=(*progress.losses, *means),
        last_loss=means[-1],
    )
