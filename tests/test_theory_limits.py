"""Where mixing leads and how fast, in closed form for every linear strategy."""

import numpy as np
import pytest

from olsgd_jax.theory import (
    cocod_sgd_matrix,
    contraction_factor,
    easgd_matrix,
    local_sgd_matrix,
    overlap_local_sgd_matrix,
    slowmo_matrix,
    stationary_vector,
    virtual_model,
)
from tests import linear
from tests.linear import ALPHA, BETA, LINEAR, RATE, STEP_SIZE

every_strategy = pytest.mark.parametrize("name", LINEAR)
every_size = pytest.mark.parametrize("m", linear.NUM_WORKERS)
every_period = pytest.mark.parametrize("tau", linear.SYNC_PERIODS)

# Weights of the mean worker, then of the other columns.
VECTORS = {
    "local_sgd": lambda m: [1],
    "easgd": lambda m: [m / (m + 1), 1 / (m + 1)],
    "cocod_sgd": lambda m: [1, *[0] * m],
    "slowmo": lambda m: (
        np.array([STEP_SIZE, 1 - BETA - STEP_SIZE, -STEP_SIZE * BETA]) / (1 - BETA)
    ),
    "overlap": lambda m: [1 - ALPHA, ALPHA],
    "overlap_momentum": lambda m: (
        np.array([1 - ALPHA, ALPHA * (1 - BETA), ALPHA * BETA]) / (1 - ALPHA * BETA)
    ),
}


@every_strategy
@every_size
def test_the_stationary_vector_has_its_closed_form(name, m):
    of_workers, *others = VECTORS[name](m)
    expected = [of_workers / m] * m + others
    vector = stationary_vector(LINEAR[name].matrix(m))
    np.testing.assert_allclose(vector, expected, rtol=0, atol=1e-14)


@every_strategy
@every_size
def test_mixing_alone_takes_all_models_to_the_virtual_model(name, m):
    # The slowest here contracts by 0.8 a round: 0.8¹⁵⁰ is below 1e-14.
    matrix = LINEAR[name].matrix(m)
    models = np.random.default_rng(0).normal(size=(linear.SIZE, len(matrix)))
    limit = models @ np.linalg.matrix_power(matrix, 150)
    y = virtual_model(models, stationary_vector(matrix))
    kept = np.array([1] * m + LINEAR[name].others(m))
    np.testing.assert_allclose(limit, np.outer(y, kept), rtol=0, atol=1e-12)


@every_strategy
@every_size
@every_period
def test_the_virtual_model_of_the_library_is_that_of_the_matrix(name, m, tau):
    vector = stationary_vector(LINEAR[name].matrix(m))
    library = linear.library_rounds_of(name, m, tau)
    paper = linear.paper_rounds_of(name, m, tau)
    for (_, _, y), x in zip(library, paper, strict=True):
        np.testing.assert_allclose(y, virtual_model(x, vector), rtol=0, atol=1e-12)


@every_strategy
@every_size
@every_period
def test_gradients_alone_move_the_virtual_model(name, m, tau):
    # y ← y − γ_eff mean g, and γ_eff / γ is the workers' share of the weights.
    gradients, expected = linear.random_gradients(m, tau)
    effective_rate = RATE * VECTORS[name](m)[0]
    library = linear.library_rounds_of(name, m, tau)
    for (_, _, y), of_round in zip(library, gradients, strict=True):
        expected = expected - effective_rate * of_round.mean(axis=0).sum(axis=0)
        np.testing.assert_allclose(y, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("alpha", [0.1, 0.6, 1.0])
@pytest.mark.parametrize("m", [2, 4])
def test_overlap_local_sgd_contracts_by_1_minus_alpha(alpha, m):
    matrix = overlap_local_sgd_matrix(m, alpha)
    deviation = matrix - np.outer(stationary_vector(matrix), np.ones(m + 1))
    norm = np.linalg.norm(deviation, ord=2)  # the paper's ζ
    factor = contraction_factor(matrix)
    np.testing.assert_allclose([factor, norm], 1 - alpha, rtol=0, atol=1e-14)


@pytest.mark.parametrize("alpha", [0.1, 0.6])
def test_a_worker_alone_meets_its_anchor_in_one_mix(alpha):
    factor = contraction_factor(overlap_local_sgd_matrix(1, alpha))
    np.testing.assert_allclose(factor, 0, atol=1e-14)


@pytest.mark.parametrize("alpha", [0.1, 0.6, 0.9])
@pytest.mark.parametrize("beta", [0.3, 0.7])
def test_anchor_momentum_adds_two_modes_of_the_mean(alpha, beta):
    # The mean, anchor and velocity mix by a 3 × 3 matrix of trace 1 + β and
    # determinant (1 − α) β. One eigenvalue is 1; the others solve λ² − βλ + (1 − α) β.
    modes = np.roots([1, -beta, (1 - alpha) * beta])
    expected = max(1 - alpha, *np.abs(modes))
    factor = contraction_factor(overlap_local_sgd_matrix(4, alpha, beta))
    np.testing.assert_allclose(factor, expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("moving_rate", [0.3, 0.8, 1.0, 1.5])
@pytest.mark.parametrize("m", [2, 4, 16])
def test_easgd_contracts_by_its_closed_form(moving_rate, m):
    a = moving_rate / m
    factor = contraction_factor(easgd_matrix(m, moving_rate))
    np.testing.assert_allclose(factor, max(1 - a, abs(1 - a - m * a)), atol=1e-14)


@pytest.mark.parametrize("m", [1, 4, 16])
def test_easgd_diverges_once_a_and_the_moving_rate_exceed_2(m):
    edge = 2 * m / (m + 1)  # a + m a = 2 there
    assert contraction_factor(easgd_matrix(m, edge - 0.01)) < 1
    assert contraction_factor(easgd_matrix(m, edge + 0.01)) > 1


@every_size
def test_cocod_sgd_forgets_all_differences_in_two_rounds(m):
    matrix = cocod_sgd_matrix(m)
    deviation = matrix - np.outer(stationary_vector(matrix), np.ones(2 * m))
    np.testing.assert_allclose(deviation @ deviation, 0, atol=1e-14)
    # Rounding moves the eigenvalues of a nilpotent block of 2 by its square root.
    assert contraction_factor(matrix) < 1e-7


def test_local_sgd_forgets_all_differences_in_one_round():
    np.testing.assert_allclose(contraction_factor(local_sgd_matrix(4)), 0, atol=1e-14)


@pytest.mark.parametrize("step_size", [0.5, 1.0])
def test_slowmo_contracts_by_its_momentum(step_size):
    factor = contraction_factor(slowmo_matrix(4, BETA, step_size))
    np.testing.assert_allclose(factor, BETA, atol=1e-13)


@pytest.mark.parametrize("function", [stationary_vector, contraction_factor])
@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (overlap_local_sgd_matrix(2, 0.0), "eigenvalue 1 exactly once, got it 2 times"),
        # Trace 2 and determinant 1, but one eigenvector: rounding splits the pair.
        (
            np.array([[1.1, 0.1], [-0.1, 0.9]]),
            "eigenvalue 1 exactly once, got it 2 times",
        ),
        (0.5 * local_sgd_matrix(2), "eigenvalue 1 exactly once, got it 0 times"),
        (np.ones((2, 3)), r"must be square, got shape \(2, 3\)"),
    ],
)
def test_a_matrix_without_one_limit_is_refused(function, matrix, message):
    with pytest.raises(ValueError, match=message):
        function(matrix)


def test_a_vector_of_another_matrix_is_refused():
    with pytest.raises(ValueError, match="each of the 3 columns of models, got 4"):
        virtual_model(np.ones((2, 3)), np.ones(4))
