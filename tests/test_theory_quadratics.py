"""The theorem on noisy quadratics, run by the library as users run it.

Worker i has ∇Fᵢ(x) = aᵢ x − bᵢ with 0 ≤ aᵢ ≤ 1, so L = 1, and noise of variance σ².
Where all aᵢ = 1, everything about y is known in closed form. With e = y − mean b, and
x̄ − y of the order of γ,

    e ← (1 − γ_eff) e − γ_eff (mean noise),  E ‖mean noise‖² = σ² / m

so (1 / K) Σ E ‖∇F(yₖ)‖² = (gap / (1 − α) + (1 − α) σ² / 2) / √(m K) (1 + O(γ τ)):
a start that dies out, and noise that does not. This is 1/4 of the first two terms of
the bound. Heterogeneity does not appear: with equal curvature it cancels in the mean.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from olsgd_jax import WORKERS, distribute, overlap_local_sgd, worker_mean
from olsgd_jax.theory import smallest_num_steps, theorem_bound, theorem_learning_rate

SIZE, SEEDS = 8, 32  # dimensions, and runs with noise of their own
GAP, NOISE = 0.5, 4.0  # F(y₀) − F_inf, σ²


@functools.partial(jax.jit, static_argnums=(0, 1))
def run(sync_period, pullback, start, slopes, shifts, noise):
    """Runs Overlap Local-SGD at the theorem's rate; noise is (step, seed, worker, …).

    Returns:
      ‖∇F(yₖ)‖² and meanᵢ ‖∇Fᵢ(yₖ) − ∇F(yₖ)‖², shaped (step, seed, worker).
    """
    num_steps, num_seeds, m, _ = noise.shape
    rate = theorem_learning_rate(1.0, m, num_steps)
    tx = distribute(optax.sgd(rate), overlap_local_sgd(pullback), sync_period)

    def worker_step(models, slope, shift, noise):
        x, opt_state, begun = models
        begun = jnp.where(opt_state.step == 0, x, begun)
        updates, opt_state = tx.update(slope * x - shift + noise, opt_state, x)
        # The paper's anchor of this round: the mean of the models that it began with.
        anchor = worker_mean(begun)
        y = (1 - pullback) * worker_mean(x) + pullback * anchor
        own = slope * y - shift
        mean = worker_mean(own)
        skew = worker_mean(jnp.sum((own - mean) ** 2))
        models = optax.apply_updates(x, updates), opt_state, begun
        return models, (jnp.sum(mean**2), skew)

    on_workers = jax.vmap(worker_step, axis_name=WORKERS)
    on_seeds = jax.vmap(on_workers, in_axes=(0, None, None, 0))
    models = jax.tree.map(
        lambda x: jnp.broadcast_to(x, (num_seeds, m, *x.shape)),
        (start, tx.init(start), start),
    )
    _, of_steps = jax.lax.scan(
        lambda models, noise: on_seeds(models, slopes, shifts, noise), models, noise
    )
    return of_steps


@functools.cache
def measured(m, tau, alpha, num_steps, kappa2=0.0):
    """Gives the mean of ‖∇F(yₖ)‖² over steps and seeds, and its standard error."""
    # A generator for each, so that the errors of different runs are independent.
    rng = np.random.default_rng([m, tau, num_steps])
    shifts = rng.normal(size=(m, SIZE))
    shifts -= shifts.mean(axis=0)
    shifts *= np.sqrt(kappa2 / max(np.sum(shifts**2) / m, 1e-9))  # 0 for one worker
    start = jnp.full(SIZE, np.sqrt(2 * GAP / SIZE))
    noise = np.sqrt(NOISE / SIZE) * rng.normal(size=(num_steps, SEEDS, m, SIZE))
    squared, _ = run(tau, alpha, start, np.ones(m), shifts, noise)
    of_seeds = np.asarray(squared)[:, :, 0].mean(axis=0)
    return of_seeds.mean(), of_seeds.std(ddof=1) / np.sqrt(SEEDS)


@functools.cache
def expected(m, tau, alpha, num_steps):
    """The expectation of what `measured` measures, with all its O(1 / K) parts.

    The second moments S of (x̄, z) follow from the paper's lines alone.
    """
    rate = np.sqrt(m / num_steps)
    step, mix = np.diag([1 - rate, 1]), np.array([[1 - alpha] * 2, [alpha] * 2])
    noise, weights = np.diag([rate**2 * NOISE / m, 0]), np.array([1 - alpha, alpha])
    second, total = np.full((2, 2), 2 * GAP), 0.0
    for k in range(num_steps):
        total += weights @ second @ weights
        second = step @ second @ step + noise
        if (k + 1) % tau == 0:
            second = mix.T @ second @ mix
    return total / num_steps


def bound_of(m, tau, alpha, num_steps, kappa2=0.0, gap=GAP, noise=NOISE):
    return theorem_bound(
        num_workers=m,
        sync_period=tau,
        pullback=alpha,
        num_steps=num_steps,
        smoothness=1.0,
        initial_gap=gap,
        noise=noise,
        heterogeneity=kappa2,
    )


# m, τ, α, K as a multiple of the smallest, κ².
SETTINGS = [
    (1, 1, 0.5, 1, 0.0),
    (4, 1, 0.5, 1, 0.0),
    (4, 1, 0.5, 16, 0.0),
    (2, 3, 0.3, 1, 1.0),
    (4, 4, 0.6, 1, 0.1),
    (2, 2, 0.9, 1, 0.0),
    (2, 2, 0.9, 16, 1.0),
]
every_setting = pytest.mark.parametrize(
    ("m", "tau", "alpha", "times", "kappa2"), SETTINGS
)


@every_setting
def test_the_library_has_the_expected_gradients(m, tau, alpha, times, kappa2):
    num_steps = times * smallest_num_steps(m, tau, alpha)
    mean, error = measured(m, tau, alpha, num_steps, kappa2)
    assert error < 0.03 * mean
    assert abs(mean - expected(m, tau, alpha, num_steps)) <= 4 * error


@every_setting
def test_the_gradients_stay_under_the_bound(m, tau, alpha, times, kappa2):
    num_steps = times * smallest_num_steps(m, tau, alpha)
    mean, error = measured(m, tau, alpha, num_steps, kappa2)
    assert mean + 4 * error <= bound_of(m, tau, alpha, num_steps, kappa2).total


def test_the_gradients_approach_a_quarter_of_the_first_two_terms():
    # The rest is of the order of γ τ, here √(m / K) = 1/62.
    mean, error = measured(4, 1, 0.5, 15_360)
    bound = bound_of(4, 1, 0.5, 15_360)
    quarter = (bound.initial_gap + bound.noise) / 4
    assert abs(mean - quarter) <= 4 * error + quarter / 62


@pytest.mark.parametrize(
    "points",
    [[(4, 960), (4, 3840), (4, 15_360)], [(1, 1920), (2, 1920), (4, 1920), (8, 1920)]],
    ids=["in the steps", "in the workers"],
)
def test_the_gradients_fall_as_the_root_of_workers_times_steps(points):
    # A straight line through log(mean) against log(m K) has the slope Σ w log(mean),
    # with weights w that depend on m K alone. Its standard error follows from those
    # of the means; the O(1 / K) parts bend it by as much as they do the expectation.
    sizes = np.log([m * num_steps for m, num_steps in points])
    centred = sizes - sizes.mean()
    weights = centred / (centred @ centred)
    runs = [(m, 1, 0.5, num_steps) for m, num_steps in points]
    means, errors = np.array([measured(*setting) for setting in runs]).T

    slope = weights @ np.log(means)
    error = np.sqrt(weights**2 @ (errors / means) ** 2)
    bend = abs(weights @ np.log([expected(*setting) for setting in runs]) + 1 / 2)

    assert 4 * error + bend < 0.06  # narrow enough to tell 1/2 from 0.4
    assert abs(slope + 1 / 2) <= 4 * error + bend


@functools.cache
def measured_with_unequal_curvature(tau, alpha, num_steps):
    """Gives the mean of ‖∇F(yₖ)‖², and κ², for ∇F₁ = x + 1 and ∇F₂ = −1, no noise."""
    slopes, shifts = np.array([1.0, 0.0]), np.array([[-1.0], [1.0]])
    quiet = np.zeros((num_steps, 1, 2, 1))
    squared, skew = run(tau, alpha, jnp.zeros(1), slopes, shifts, quiet)
    return np.mean(squared), float(np.max(skew))


@pytest.mark.parametrize(("tau", "alpha"), [(1, 0.5), (4, 0.6)])
def test_unequal_curvature_makes_y_miss_the_minimum_by_its_closed_form(tau, alpha):
    # From the minimum x = 0 of F on: at step t of a round the workers are
    # d = γ (t + τ (1 − α) / α) off their mean. Only one of them has curvature, so
    # ∇F(y) goes to half the mean of d, at the rate γ_eff / 2. Its way there takes
    # 1.5 / (K γ_eff / 2) off the mean square; what is left is of the order of γ τ / α.
    num_steps = 16 * smallest_num_steps(2, tau, alpha)
    rate = theorem_learning_rate(1.0, 2, num_steps)
    distance = rate * ((tau - 1) / 2 + tau * (1 - alpha) / alpha)
    way = num_steps * (1 - alpha) * rate / 2
    closed_form = (distance / 2) ** 2 * (1 - 1.5 / way)
    mean, _ = measured_with_unequal_curvature(tau, alpha, num_steps)
    np.testing.assert_allclose(mean, closed_form, rtol=rate * tau / alpha)


@pytest.mark.parametrize(("tau", "alpha"), [(1, 0.5), (4, 0.6)])
@pytest.mark.parametrize("times", [1, 16])
def test_what_heterogeneity_costs_stays_under_its_term(tau, alpha, times):
    num_steps = times * smallest_num_steps(2, tau, alpha)
    mean, kappa2 = measured_with_unequal_curvature(tau, alpha, num_steps)
    bound = bound_of(2, tau, alpha, num_steps, kappa2, gap=0.0, noise=0.0)
    assert 0 < mean <= bound.heterogeneity
