"""train: a config becomes a training run, and the run its records."""

import math
import time
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp

from olsgd_jax.build import Parts, build
from olsgd_jax.config import Config
from olsgd_jax.consensus import mean_over_workers, model_of, spread
from olsgd_jax.describe import describe
from olsgd_jax.drivers.make_round import make_round
from olsgd_jax.evaluate import Evaluation, evaluate
from olsgd_jax.local import WorkerState
from olsgd_jax.record import Record
from olsgd_jax.types import EvaluatedModel


def train(config: Config, parts: Parts | None = None) -> Iterator[Record]:
    """Trains as a config says.

    Whatever is wrong with the config is raised by the call; the training itself goes
    only as far as records are asked for.

    Args:
      config: of the run.
      parts: what `build` made of it; built here by default.

    Returns:
      A record of every `evaluate_every` rounds, and one of the last round.

    Raises:
      FloatingPointError: when a loss is not finite, while records are asked for.

    >>> from olsgd_jax import Config, train
    >>> [record.step for record in train(Config(num_rounds=3, evaluate_every=2))]
    [8, 12]
    """
    parts = parts or build(config)
    state = parts.init()
    for which in config.evaluate:  # raises where the strategy keeps no such model
        model_of(state, parts.strategy, which, parts.mesh)
    return _records(config, parts, state)


def _records(config: Config, parts: Parts, first: WorkerState) -> Iterator[Record]:
    bytes_per_step = describe(config, parts).bytes_per_round / config.sync_period
    last_loss = None
    for num_rounds, state, losses, seconds in _rounds(config, parts, first):
        for number, loss in enumerate(losses, num_rounds - len(losses) + 1):
            _check_finite("train_loss", loss, last_loss, number, config)
            last_loss = loss
        tests = {which: _test(parts, state, which) for which in config.evaluate}
        for test in tests.values():
            _check_finite("test_loss", test.loss, last_loss, num_rounds, config)
        step = num_rounds * config.sync_period + config.long_first_round
        yield Record(
            round=num_rounds,
            step=step,
            examples=step * config.num_workers * config.batch_size,
            learning_rate=float(jnp.asarray(parts.schedule(step - 1))),
            train_loss=sum(losses) / len(losses),
            tests=tests,
            spread=spread(state, parts.mesh),
            bytes_per_step=bytes_per_step,
            seconds=seconds,
        )


def _test(parts: Parts, state: WorkerState, which: EvaluatedModel) -> Evaluation:
    model = model_of(state, parts.strategy, which, parts.mesh)
    return evaluate(
        parts.task, *model, parts.dataset.test_inputs, parts.dataset.test_labels
    )


def _rounds(
    config: Config, parts: Parts, state: WorkerState
) -> Iterator[tuple[int, WorkerState, list[float], float]]:
    """Trains, and stops wherever an evaluation is due.

    Yields:
      Rounds so far, the state, the mean loss of every round since the last stop, and
      the seconds that all rounds took.
    """
    overlap_round = _compiled_round(config, parts, state, number=1)
    first_round = overlap_round
    if config.long_first_round:
        first_round = _compiled_round(config, parts, state, number=0)
    seconds = 0.0
    for first in range(0, config.num_rounds, config.evaluate_every):
        due = min(first + config.evaluate_every, config.num_rounds)
        began, losses = time.perf_counter(), []
        # Losses stay on the devices, so that rounds need not wait for the host.
        for number in range(first, due):
            run = overlap_round if number else first_round
            state, record = run(state, parts.batches(number))
            losses.append(record.loss)
            # Two rounds under way keep devices busy. More would hold more batches, and
            # dozens can block each other for good where devices share a CPU.
            jax.block_until_ready(losses[-2:][0])
        jax.block_until_ready(state)
        seconds += time.perf_counter() - began
        losses = mean_over_workers(losses, parts.mesh)
        yield due, state, [float(loss.mean()) for loss in losses], seconds


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


def _check_finite(
    name: str, loss: float, last_loss: float | None, number: int, config: Config
) -> None:
    if not math.isfinite(loss):
        raise FloatingPointError(
            f"{name} must stay finite, got {loss} in round {number} of "
            f"{config.strategy}; the last finite train_loss was {last_loss}; "
            f"use a learning_rate below {config.learning_rate}"
        )
