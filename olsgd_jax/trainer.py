"""train: a config becomes a training run, and the run its records."""

import math
import time
from collections.abc import Iterator

import jax
import jax.numpy as jnp

from olsgd_jax.build import Parts, build
from olsgd_jax.config import Config
from olsgd_jax.consensus import mean_over_workers, model_of, spread
from olsgd_jax.drivers.make_round import make_round
from olsgd_jax.evaluate import evaluate
from olsgd_jax.local import WorkerState
from olsgd_jax.payload import payload_bytes
from olsgd_jax.records import Record
from olsgd_jax.round import make_worker_round


def train(config: Config) -> Iterator[Record]:
    """Trains as a config says.

    Whatever is wrong with the config is raised by the call; the training itself goes
    only as far as records are asked for.

    Returns:
      A record of every `evaluate_every` rounds, and one of the last round.

    Raises:
      FloatingPointError: when a loss is not finite, while records are asked for.

    >>> from olsgd_jax import Config, train
    >>> [record.step for record in train(Config(num_rounds=3, evaluate_every=2))]
    [8, 12]
    """
    parts = build(config)
    state = parts.init()
    # Raises where the strategy keeps no such model.
    model_of(state, parts.strategy, config.evaluate, parts.mesh)
    return _records(config, parts, state)


def _records(config: Config, parts: Parts, first: WorkerState) -> Iterator[Record]:
    bytes_per_step, last_loss = _bytes_per_step(config, parts, first), None
    for num_rounds, state, losses, seconds in _rounds(config, parts, first):
        for number, loss in enumerate(losses, num_rounds - len(losses) + 1):
            _check_finite("train_loss", loss, last_loss, number, config)
            last_loss = loss
        model = model_of(state, parts.strategy, config.evaluate, parts.mesh)
        test_loss, test_accuracy = evaluate(
            parts.task, *model, parts.dataset.test_inputs, parts.dataset.test_labels
        )
        _check_finite("test_loss", test_loss, last_loss, num_rounds, config)
        step = num_rounds * config.sync_period
        yield Record(
            round=num_rounds,
            step=step,
            examples=step * config.num_workers * config.batch_size,
            train_loss=sum(losses) / len(losses),
            test_loss=test_loss,
            test_accuracy=test_accuracy,
            spread=spread(state, parts.mesh),
            bytes_per_step=bytes_per_step,
            seconds=seconds,
        )


def _rounds(
    config: Config, parts: Parts, state: WorkerState
) -> Iterator[tuple[int, WorkerState, list[float], float]]:
    """Trains, and stops wherever an evaluation is due.

    Yields:
      Rounds so far, the state, the mean loss of every round since the last stop, and
      the seconds that all rounds took.
    """
    overlap_round = make_round(
        parts.task.loss,
        parts.optimizer,
        parts.strategy,
        sync_period=config.sync_period,
        mesh=parts.mesh,
        mapping=config.mapping,
        model_state_policy=config.model_state_policy,
    )
    # A round on a copy that is thrown away keeps compilation out of the time.
    copy = jax.tree.map(jnp.copy, state)
    jax.block_until_ready(overlap_round(copy, parts.batches(0)))
    seconds = 0.0
    for first in range(0, config.num_rounds, config.evaluate_every):
        due = min(first + config.evaluate_every, config.num_rounds)
        began, losses = time.perf_counter(), []
        # Losses stay on the devices, so that rounds need not wait for the host.
        for number in range(first, due):
            state, record = overlap_round(state, parts.batches(number))
            losses.append(record.loss)
        jax.block_until_ready(state)
        seconds += time.perf_counter() - began
        losses = mean_over_workers(losses, parts.mesh)
        yield due, state, [float(loss.mean()) for loss in losses], seconds


def _bytes_per_step(config: Config, parts: Parts, state: WorkerState) -> float:
    worker_round = make_worker_round(
        parts.task.loss, parts.optimizer, parts.strategy, config.model_state_policy
    )
    num_bytes = payload_bytes(
        worker_round, state, parts.batches(0), num_workers=config.num_workers
    )
    return num_bytes / config.sync_period


def _check_finite(
    name: str, loss: float, last_loss: float | None, number: int, config: Config
) -> None:
    if not math.isfinite(loss):
        raise FloatingPointError(
            f"{name} must stay finite, got {loss} in round {number} of "
            f"{config.strategy}; the last finite train_loss was {last_loss}; "
            f"use a learning_rate below {config.learning_rate}"
        )
