"""How `guidance` trains a case: four workers, lanes of one device, on the optax face.

A blocking warm-up averages the gradients of each of the first local steps (`sync_sgd`),
then hands params and optimizer state over to the strategy.
"""

from collections.abc import Callable, Iterator

import jax
import numpy as np
import optax
from jax import lax

from experiments.tuning.cases import Case
from experiments.tuning.problems import Problem
from olsgd_jax import consensus_of, distribute, overlap_jit, sync_sgd, to_workers

NUM_WORKERS, NUM_PARTS = 4, 20  # a run is evaluated at the end of each of its parts


def train(case: Case, problem: Problem) -> Iterator[tuple[int, float]]:
    """Trains; yields local steps and held-out loss at the end of every part."""
    steps_per_part = case.num_steps // NUM_PARTS
    optimizer = problem.optimizer(case.learning_rate, case.num_steps)
    warm_tx = distribute(optimizer, sync_sgd(), sync_period=1)
    tx = distribute(optimizer, case.build(), case.sync_period)
    params = problem.init(jax.random.key(case.seed))
    evaluate = jax.jit(problem.loss)
    rng = np.random.default_rng(case.seed)
    num_warm = round(case.warmup * NUM_PARTS)

    now = warm_tx if num_warm else tx
    run_part = overlap_jit(_steps(problem.loss, now))
    state = to_workers((params, now.init(params)), NUM_WORKERS)
    for part in range(NUM_PARTS):
        if num_warm and part == num_warm:
            state = hand_over(state, tx)
            run_part = overlap_jit(_steps(problem.loss, tx))
        numbers = rng.random((NUM_WORKERS, steps_per_part, problem.batch_size))
        state = run_part(state, problem.examples(numbers))
        loss = evaluate(consensus_of(state[0]), problem.held_out)
        yield (part + 1) * steps_per_part, float(loss)


def hand_over(state: tuple, tx: optax.GradientTransformation) -> tuple:
    """Ends a warm-up: `tx` starts with the current params and optimizer state.

    `state` is of a `distribute` with `sync_sgd`, and `tx` one of the same optimizer.
    """
    params, warm = state
    fresh = to_workers(tx.init(consensus_of(params)), NUM_WORKERS)
    return params, fresh._replace(opt_state=warm.opt_state)


def _steps(loss: Callable, tx: optax.GradientTransformation) -> Callable:
    """Makes a function that runs one worker's local steps."""

    def step(state: tuple, batch: tuple) -> tuple[tuple, None]:
        params, opt_state = state
        grads = jax.grad(loss)(params, batch)
        updates, opt_state = tx.update(grads, opt_state, params)
        return (optax.apply_updates(params, updates), opt_state), None

    return lambda state, batches: lax.scan(step, state, batches)[0]
