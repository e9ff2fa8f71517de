"""A record of a run, measured between two rounds."""

import math

import jax.numpy as jnp

from olsgd_jax.round.consensus import model_of, spread
from olsgd_jax.round.local_steps import WorkerState
from olsgd_jax.training.components import Components
from olsgd_jax.training.config import Config
from olsgd_jax.training.evaluate import Evaluation, evaluate
from olsgd_jax.training.records.types import Record
from olsgd_jax.training.recovery.divergence import diverged
from olsgd_jax.training.recovery.resume import Progress
from olsgd_jax.types import EvaluatedModel


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
    data = components.dataset
    model = model_of(state, components.strategy, which, components.mesh)
    return evaluate(components.task, *model, data.test_inputs, data.test_labels)
