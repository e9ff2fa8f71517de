"""The theorem's bound by hand, and the steps of its proof on which it stands."""

import math

import numpy as np
import pytest

from olsgd_jax.theory import (
    Bound,
    overlap_local_sgd_matrix,
    smallest_num_steps,
    stationary_vector,
    theorem_bound,
    theorem_learning_rate,
)

SETTING = {
    "num_workers": 4,
    "sync_period": 2,
    "pullback": 0.5,
    "num_steps": 10_000,
    "smoothness": 2.0,
    "initial_gap": 3.0,
    "noise": 5.0,
    "heterogeneity": 7.0,
}


def test_the_terms_are_those_worked_out_by_hand():
    # √(m K) = 200 and 2 τ / ((2 − α) α) − 1 = 13 / 3.
    expected = Bound(24 / 100, 5 / 200, 40 / 10_000 * 13 / 3, 3360 / 2500)
    bound = theorem_bound(**SETTING)
    np.testing.assert_allclose(bound, expected, rtol=1e-14)
    assert bound.total == pytest.approx(sum(expected), rel=1e-14)


def test_only_the_heterogeneity_is_printed_otherwise_a_15th_of_the_proof_s():
    proven, printed = (
        theorem_bound(**SETTING),
        theorem_bound(**SETTING, as_printed=True),
    )
    assert printed[:3] == proven[:3]
    assert printed.heterogeneity == pytest.approx(proven.heterogeneity / 15, rel=1e-14)


def last_line_of_the_proof(**setting):
    """The proof's line before it puts in γ and K, with the 15 that it has lost."""
    m, tau, alpha = (setting[x] for x in ("num_workers", "sync_period", "pullback"))
    steps, smooth, gap = (
        setting[x] for x in ("num_steps", "smoothness", "initial_gap")
    )
    noise, kappa2 = setting["noise"], setting["heterogeneity"]
    rate = theorem_learning_rate(smooth, m, steps)
    effective = (1 - alpha) * rate
    d = 15 * rate**2 * smooth**2 * tau**2 / alpha**2
    local = rate**2 * smooth**2 / (1 - 2 * d)
    return (
        2 * gap / (effective * steps) * (1 - d) / (1 - 2 * d),
        effective * smooth * noise / m * (1 - d) / (1 - 2 * d),
        local * noise * (2 / ((2 - alpha) * alpha) * tau - 1),
        local * 15 * tau**2 * kappa2 / alpha**2,
    )


def test_at_the_smallest_num_steps_the_bound_is_the_last_line_of_the_proof():
    # D = 1/4 there, so 1 / (1 − 2 D) = 2, which the theorem has in its last two terms;
    # of its first two it has rounded (1 − D) / (1 − 2 D) = 3/2 up to 2.
    setting = SETTING | {"num_steps": 3840}
    assert smallest_num_steps(4, 2, 0.5) == 3840
    expected = np.array([4 / 3, 4 / 3, 1, 1]) * last_line_of_the_proof(**setting)
    np.testing.assert_allclose(theorem_bound(**setting), expected, rtol=1e-13)


def test_with_more_steps_the_bound_is_above_the_last_line_of_the_proof():
    assert np.all(
        theorem_bound(**SETTING) > np.array(last_line_of_the_proof(**SETTING))
    )


def distances(m, tau, alpha, num_rounds):
    """The map from all workers' gradients to −1/γ times their distances to y.

    Block (k, j) is what step j has left in xₖ − yₖ: W_j ⋯ W_{k−1} − v 1ᵀ.
    """
    mixing = overlap_local_sgd_matrix(m, alpha)
    limit = np.outer(stationary_vector(mixing), np.ones(m + 1))
    steps = num_rounds * tau
    blocks = np.zeros((steps, steps, m, m))
    for j in range(steps):
        product = np.eye(m + 1)
        for k in range(j + 1, steps):
            product = product @ mixing if k % tau == 0 else product
            blocks[k, j] = (product - limit)[:m, :m]
    return blocks


every_period = pytest.mark.parametrize("tau", [1, 3])
every_pullback = pytest.mark.parametrize("alpha", [0.2, 0.6, 0.9])


@every_period
@every_pullback
def test_no_gradients_lead_further_from_y_than_the_proof_says(tau, alpha):
    # Σ ‖x − y‖² ≤ s² γ² Σ ‖g‖², s the largest singular value. The proof splits noise
    # from gradients, which doubles s²; it says 5 τ² / α², and 2 − α does for its 5.
    blocks = distances(m=2, tau=tau, alpha=alpha, num_rounds=40)
    flat = blocks.transpose(0, 2, 1, 3).reshape(80 * tau, 80 * tau)
    assert 2 * np.linalg.norm(flat, ord=2) ** 2 <= (2 - alpha) * tau**2 / alpha**2


@every_period
@every_pullback
def test_no_noise_leads_further_from_y_than_the_proof_says(tau, alpha):
    # Independent noise adds up in squares. The proof doubles it as well, and says
    # (1 + ζ²) / (1 − ζ²) τ − 1, before it rounds this up to the term of the theorem.
    m, num_rounds = 4, 40
    blocks = distances(m, tau, alpha, num_rounds)
    mean = np.sum(blocks**2) / m / (num_rounds * tau)
    zeta = 1 - alpha
    assert 2 * mean <= (1 + zeta**2) / (1 - zeta**2) * tau - 1


@pytest.mark.parametrize("alpha", [0.2, 0.6])
def test_taking_y_from_gradients_lengthens_none_without_an_anchor_column(alpha):
    matrix = np.eye(5) - np.outer(
        stationary_vector(overlap_local_sgd_matrix(4, alpha)), np.ones(5)
    )
    assert np.linalg.norm(matrix[:4], ord=2) <= 1 + 1e-14
    # With an anchor column it would: this is where the proof has a gap to close.
    norm = math.sqrt(5 * ((1 - alpha) ** 2 / 4 + alpha**2))
    np.testing.assert_allclose(np.linalg.norm(matrix, ord=2), norm, rtol=1e-13)


@pytest.mark.parametrize(
    ("m", "tau", "alpha", "expected"),
    [
        (1, 1, 0.5, 240),
        (3, 1, 0.6, 500),  # the float 0.6 is below 0.6, by enough to give 501
        (4, 2, 0.1, 96_000),  # the float 0.1 is above 0.1
        (1, 1, 0.7, 123),  # 122.4…
    ],
)
def test_the_smallest_num_steps_is_exact(m, tau, alpha, expected):
    assert smallest_num_steps(m, tau, alpha) == expected


def test_the_learning_rate_is_the_theorem_s():
    assert theorem_learning_rate(0.5, num_workers=9, num_steps=3600) == 0.1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_steps": 3839}, "num_steps must be at least 3840 .* got 3839"),
        ({"num_steps": 0}, "num_steps must be at least 1, got 0"),
        ({"num_workers": 0}, "num_workers must be at least 1, got 0"),
        ({"sync_period": 0}, "sync_period must be at least 1, got 0"),
        ({"pullback": 0.0}, r"pullback must be in \(0, 1\), got 0.0"),
        ({"pullback": 1.0}, r"pullback must be in \(0, 1\), got 1.0"),
        ({"smoothness": 0.0}, r"smoothness must be in \(0, inf\), got 0.0"),
        ({"initial_gap": -1.0}, r"initial_gap must be in \[0, inf\), got -1.0"),
        ({"noise": -1.0}, r"noise must be in \[0, inf\), got -1.0"),
        ({"heterogeneity": -1.0}, r"heterogeneity must be in \[0, inf\), got -1.0"),
    ],
)
def test_what_the_theorem_does_not_cover_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        theorem_bound(**(SETTING | change))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.0, 1, 1), r"smoothness must be in \(0, inf\)"),
        ((1.0, 0, 1), "num_workers must be at least 1"),
        ((1.0, 1, 0), "num_steps must be at least 1"),
    ],
)
def test_a_learning_rate_of_nothing_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        theorem_learning_rate(*arguments)
