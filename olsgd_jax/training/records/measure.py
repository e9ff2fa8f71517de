"""Measures a record between two rounds."""

import math

import jax.numpy as jnp

from olsgd_jax.round.consensus import model_of, spread
from olsgd_jax.round.local_steps import WorkerState
from olsgd_jax.training.components import Components
from olsgd_jax.training.config import Config
from olsgd_jax.training.evaluate import evaluate
from olsgd_jax.training.records.types import Record
from olsgd_jax.training.recovery.divergence import diverged
from olsgd_jax.training.recovery.resume import Progress
from olsgd_jax.training.sampling import sample_text


def make_record(
    config: Config,
    components: Components,
    state: WorkerState,
    progress: Progress,
    bytes_per_step: float,
) -> Record:
    """Evaluates the models of a run, and measures how far apart its workers are."""
    dataset, task = components.dataset, components.task
    tests, sample = {}, None
    for which in config.evaluate:
        model = model_of(state, components.strategy, which, components.mesh)
        tests[which] = evaluate(task, *model, dataset.test_inputs, dataset.test_labels)
        if dataset.alphabet is not None and sample is None:
            given = dataset.alphabet, config.context
            sample = sample_text(task, *model, *given, seed=config.seed)
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
        tokens=None if sample is None else progress.examples * config.context,
        sample=sample,
    )
