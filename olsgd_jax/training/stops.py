"""A stop between two rounds: what is to be done there, and what is made of it."""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from olsgd_jax.round.consensus import model_of, spread
from olsgd_jax.round.local_steps import WorkerState
from olsgd_jax.training.checkpoints import Due
from olsgd_jax.training.components import Components
from olsgd_jax.training.config import Config
from olsgd_jax.training.evaluate import Evaluation, evaluate
from olsgd_jax.training.records.types import Record
from olsgd_jax.training.recovery.divergence import (
    check_losses,
    check_state_finite,
    diverged,
)
from olsgd_jax.training.recovery.resume import Progress
from olsgd_jax.training.rounds import Stop
from olsgd_jax.types import EvaluatedModel
from olsgd_jax.workers.sharding import to_host


class Todo(NamedTuple):
    """What is to be done between two rounds; a stop is where anything is."""

    record: bool = False
    save: bool = False
    end: bool = False


def what_to_do(
    config: Config,
    number: int,
    due: Due | None,
    preempted: Callable[[], bool] | None,
) -> Todo:
    """Says what is to be done after so many rounds, the same in all processes.

    >>> from olsgd_jax.training import Config
    >>> what_to_do(Config(evaluate_every=3), number=4, due=None, preempted=None)
    Todo(record=False, save=False, end=False)
    """
    if number == config.num_rounds:
        return Todo(record=True, save=True)
    end = preempted is not None and preempted()
    save = end or (due is not None and due(number))
    return Todo(number % config.evaluate_every == 0, save, end)


def advanced(
    config: Config, components: Components, progress: Progress, stop: Stop
) -> Progress:
    """Adds the rounds up to a stop, if all of their numbers are finite."""
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


def make_record(
    config: Config,
    components: Components,
    state: WorkerState,
    progress: Progress,
    bytes_per_step: float,
) -> Record:
    """Measures a run where it is."""
    tests = {which: _test(components, state, which) for which in config.evaluate}
    apart = spread(state, components.mesh)
    measured = [("test_loss", test.loss) for test in tests.values()]
    for name, value in (*measured, ("spread", apart)):
        if not math.isfinite(value):
            raise diverged(name, value, progress.round, config, progress.last_loss)
    step = config.num_steps(progress.round)
    return Record(
        round=progress.round,
        step=step,
        examples=progress.examples,
        learning_rate=float(jnp.asarray(components.schedule(step - 1))),
        train_loss=sum(progress.losses) / len(progress.losses),
        tests=tests,
        spread=apart,
        bytes_per_step=bytes_per_step,
        seconds=progress.seconds,
    )


def _test(
    components: Components, state: WorkerState, which: EvaluatedModel
) -> Evaluation:
    model = model_of(state, components.strategy, which, components.mesh)
    return evaluate(
        components.task,
        *model,
        components.dataset.test_inputs,
        components.dataset.test_labels,
    )
