"""Mixing matrices against the strategies that they are the matrices of."""

import jax
import numpy as np
import pytest

from olsgd_jax import (
    WORKERS,
    cocod_sgd,
    easgd,
    local_sgd,
    overlap_local_sgd,
    slowmo,
    sync_sgd,
    worker_mean,
)
from olsgd_jax.theory import (
    cocod_sgd_matrix,
    easgd_matrix,
    local_sgd_matrix,
    overlap_local_sgd_matrix,
    slowmo_matrix,
)
from tests import linear
from tests.linear import ALPHA, BETA, LINEAR, MOVING_RATE, STEP_SIZE

every_strategy = pytest.mark.parametrize("name", LINEAR)
every_size = pytest.mark.parametrize("m", linear.NUM_WORKERS)


@every_strategy
@every_size
@pytest.mark.parametrize("tau", linear.SYNC_PERIODS)
def test_the_matrix_gives_the_trajectory_of_the_library(name, m, tau):
    library = linear.library_rounds_of(name, m, tau)
    paper = linear.paper_rounds_of(name, m, tau)
    for (models, _, _), x in zip(library, paper, strict=True):
        np.testing.assert_allclose(models.T, x[:, :m], rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["overlap", "overlap_momentum"])
def test_the_anchor_of_the_library_is_the_paper_s_a_round_later(name):
    library, paper = (
        linear.library_rounds_of(name, 4, 3),
        linear.paper_rounds_of(name, 4, 3),
    )
    for (_, state, _), x in zip(library[1:], paper[:-1], strict=True):
        anchor = np.tile(x[:, 4], (4, 1))
        np.testing.assert_allclose(state.anchor, anchor, rtol=0, atol=1e-12)


def test_the_velocity_of_the_library_is_the_paper_s_a_round_later():
    library = linear.library_rounds_of("overlap_momentum", 4, 3)
    paper = linear.paper_rounds_of("overlap_momentum", 4, 3)
    for (_, state, _), x in zip(library[1:], paper[:-1], strict=True):
        velocity = np.tile(x[:, 5], (4, 1))
        np.testing.assert_allclose(state.velocity, velocity, rtol=0, atol=1e-12)


@every_size
def test_a_step_of_sync_sgd_is_a_round_of_local_sgd(m):
    library = linear.library_rounds(sync_sgd(), m, tau=1)
    paper = linear.paper_rounds(local_sgd_matrix(m), [], m, tau=1)
    for (models, _, _), x in zip(library, paper, strict=True):
        np.testing.assert_allclose(models.T, x, rtol=0, atol=1e-12)


# Column j of X = I is the unit vector j, and I P = P: one mix of unit vectors is the
# matrix. A mix has models as rows, so it gives the rows of Pᵀ.


def mixed(strategy, starts, ends, state):
    """Runs `strategy.mix` on all workers, from a state that they have in common."""

    def of_worker(start, end):
        mean = worker_mean(start if strategy.mean_of == "start" else end)
        return strategy.mix(start, end, mean, state)

    params, states = jax.jit(jax.vmap(of_worker, axis_name=WORKERS))(starts, ends)
    return params, jax.tree.map(lambda x: x[0], states)


def local_sgd_rows(m):
    return mixed(local_sgd(), np.eye(m), np.eye(m), ())[0]


def easgd_rows(m):
    unit, strategy = np.eye(m + 1), easgd(MOVING_RATE, m)
    params, state = mixed(strategy, unit[:m], unit[:m], strategy.init(unit[m]))
    return [*params, state.anchor]


def cocod_sgd_rows(m):
    unit = np.eye(2 * m)
    params, _ = mixed(cocod_sgd(), unit[m:], unit[:m], ())
    return [*params, *params]  # the next round starts where this one ends


def slowmo_rows(m):
    unit, strategy = np.eye(m + 2), slowmo(BETA, STEP_SIZE)
    state = strategy.init(unit[m])._replace(velocity=unit[m + 1])
    starts = np.tile(unit[m], (m, 1))
    params, state = mixed(strategy, starts, unit[:m], state)
    return [*params, params[0], state.velocity]


def overlap_momentum_rows(m, anchor_momentum=BETA):
    # The library moves its anchor as it mixes. From z − v, with all starts at z and
    # no velocity, it moves to z, with velocity v: the paper's of this round. The
    # paper's of the next round are the library's after a second mix.
    unit, strategy = np.eye(m + 2), overlap_local_sgd(ALPHA, anchor_momentum)
    z, v = unit[m], unit[m + 1]
    state = strategy.init(z - v)
    params, state = mixed(strategy, np.tile(z, (m, 1)), unit[:m], state)
    _, state = mixed(strategy, params, params, state)
    return [*params, state.anchor, state.velocity]


def overlap_rows(m):
    # Without momentum nothing is made of v, and v is made into nothing.
    rows = np.stack(overlap_momentum_rows(m, anchor_momentum=0.0))
    return rows[: m + 1, : m + 1]


UNIT_ROWS = {
    "local_sgd": local_sgd_rows,
    "easgd": easgd_rows,
    "cocod_sgd": cocod_sgd_rows,
    "slowmo": slowmo_rows,
    "overlap": overlap_rows,
    "overlap_momentum": overlap_momentum_rows,
}


@every_strategy
@every_size
def test_a_mix_of_unit_vectors_gives_the_matrix(name, m):
    matrix = LINEAR[name].matrix(m)
    np.testing.assert_allclose(
        np.stack(UNIT_ROWS[name](m)).T, matrix, rtol=0, atol=1e-15
    )


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
@every_size
def test_overlap_local_sgd_mixes_as_the_paper_s_pagerank_does(m, alpha):
    # P = (1 − α) A + α b 1ᵀ: stay with the worker, or jump to the anchor.
    stay = np.zeros((m + 1, m + 1))
    stay[:m, :m], stay[:m, m] = np.eye(m), 1 / m
    jump = np.outer(np.eye(m + 1)[m], np.ones(m + 1))
    expected = (1 - alpha) * stay + alpha * jump
    np.testing.assert_allclose(
        overlap_local_sgd_matrix(m, alpha), expected, rtol=0, atol=1e-15
    )


@every_strategy
@every_size
def test_equal_models_without_velocity_stay_as_they_are(name, m):
    # In the paper's words, P is column-stochastic; a velocity counts for nothing.
    kept = np.array([1.0] * m + LINEAR[name].others(m))
    np.testing.assert_allclose(kept @ LINEAR[name].matrix(m), kept, atol=1e-15)


@every_size
def test_easgd_is_symmetric_so_that_rows_sum_to_1_as_well(m):
    matrix = easgd_matrix(m, MOVING_RATE)
    np.testing.assert_array_equal(matrix, matrix.T)


def test_slowmo_without_momentum_is_local_sgd():
    matrix = slowmo_matrix(4, momentum=0.0)
    np.testing.assert_array_equal(matrix[:4, :4], local_sgd_matrix(4))
    np.testing.assert_array_equal(matrix[4:, :4], 0)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: overlap_local_sgd_matrix(0, 0.5), "num_workers must be at least 1"),
        (lambda: overlap_local_sgd_matrix(2, 1.5), r"pullback must be in \[0, 1\]"),
        (
            lambda: overlap_local_sgd_matrix(2, 0.5, 1.0),
            r"anchor_momentum must be in \[0, 1\)",
        ),
        (lambda: local_sgd_matrix(0), "num_workers must be at least 1"),
        (lambda: easgd_matrix(0, 0.5), "num_workers must be at least 1"),
        (lambda: easgd_matrix(2, 0.0), r"moving_rate must be in \(0, inf\)"),
        (lambda: cocod_sgd_matrix(0), "num_workers must be at least 1"),
        (lambda: slowmo_matrix(0, 0.5), "num_workers must be at least 1"),
        (lambda: slowmo_matrix(2, 1.0), r"momentum must be in \[0, 1\)"),
        (lambda: slowmo_matrix(2, 0.5, 0.0), r"step_size must be in \(0, inf\)"),
    ],
)
def test_arguments_that_no_strategy_has_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()
