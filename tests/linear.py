"""The linear strategies: each with its matrix, run by the library and by X P."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from olsgd_jax import (
    WORKERS,
    cocod_sgd,
    easgd,
    init_state,
    local_sgd,
    make_worker_round,
    overlap_local_sgd,
    plain_loss,
    slowmo,
)
from olsgd_jax.theory import (
    cocod_sgd_matrix,
    easgd_matrix,
    local_sgd_matrix,
    overlap_local_sgd_matrix,
    slowmo_matrix,
)

ALPHA, BETA, STEP_SIZE, MOVING_RATE = 0.6, 0.7, 0.9, 0.8
RATE, ROUNDS = 0.1, 5
SIZE = 3  # dimensions of a model
NUM_WORKERS, SYNC_PERIODS = (1, 2, 4), (1, 3)


class Linear(NamedTuple):
    """A strategy, its matrix, and what X starts as, each given m."""

    strategy: Callable
    matrix: Callable
    others: Callable  # columns after the workers': 1 of a model, 0 of a velocity


LINEAR = {
    "local_sgd": Linear(lambda m: local_sgd(), local_sgd_matrix, lambda m: []),
    "easgd": Linear(
        lambda m: easgd(MOVING_RATE, m),
        lambda m: easgd_matrix(m, MOVING_RATE),
        lambda m: [1],
    ),
    "cocod_sgd": Linear(lambda m: cocod_sgd(), cocod_sgd_matrix, lambda m: [1] * m),
    "slowmo": Linear(
        lambda m: slowmo(BETA, STEP_SIZE),
        lambda m: slowmo_matrix(m, BETA, STEP_SIZE),
        lambda m: [1, 0],
    ),
    "overlap": Linear(
        lambda m: overlap_local_sgd(ALPHA),
        lambda m: overlap_local_sgd_matrix(m, ALPHA),
        lambda m: [1],
    ),
    "overlap_momentum": Linear(
        lambda m: overlap_local_sgd(ALPHA, BETA),
        lambda m: overlap_local_sgd_matrix(m, ALPHA, BETA),
        lambda m: [1, 0],
    ),
}


def random_gradients(m, tau):
    """Gradients shaped (round, worker, step, dimension), and a start."""
    rng = np.random.default_rng(m + 10 * tau)
    return rng.normal(size=(ROUNDS, m, tau, SIZE)), rng.normal(size=SIZE)


def library_rounds(strategy, m, tau):
    """Lists the workers' models, their strategy's state and y after every round."""
    gradients, start = random_gradients(m, tau)
    loss = plain_loss(lambda x, g: jnp.vdot(g, x))
    worker_round = make_worker_round(loss, optax.sgd(RATE), strategy)

    def run_round(state, batches):
        state, _ = jax.vmap(worker_round, axis_name=WORKERS)(state, batches)
        one = jax.tree.map(lambda x: x[0], state.strategy_state)
        y = strategy.virtual(state.params.mean(axis=0), one)
        return state, (state.params, state.strategy_state, y)

    state = init_state(jnp.asarray(start), optax.sgd(RATE), strategy, num_workers=m)
    _, rounds = jax.lax.scan(run_round, state, jnp.asarray(gradients))
    return [
        jax.tree.map(lambda x, r=r: np.asarray(x[r]), rounds) for r in range(ROUNDS)
    ]


@functools.cache
def library_rounds_of(name, m, tau):
    return library_rounds(LINEAR[name].strategy(m), m, tau)


def paper_rounds(matrix, others, m, tau):
    """Lists X after every round: X ← (X − γ G) W, with W = P at its end."""
    gradients, start = random_gradients(m, tau)
    x, rounds = np.outer(start, [1] * m + others), []
    for of_round in gradients:
        for k in range(tau):
            g = np.hstack([of_round[:, k].T, np.zeros((SIZE, len(others)))])
            w = matrix if k == tau - 1 else np.eye(len(matrix))
            x = (x - RATE * g) @ w
        rounds.append(x)
    return rounds


def paper_rounds_of(name, m, tau):
    return paper_rounds(LINEAR[name].matrix(m), LINEAR[name].others(m), m, tau)
