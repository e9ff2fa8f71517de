"""The model of time by hand: networks, local steps, the slowest worker."""

import numpy as np
import pytest
from scipy import special

from olsgd_jax import (
    cocod_sgd,
    easgd,
    local_sgd,
    overlap_local_sgd,
    slowmo,
    sync_sgd,
)
from olsgd_jax.timing import (
    Constant,
    Exchanges,
    RandomPauses,
    Ring,
    Setting,
    ShiftedExponential,
    SlowWorker,
    Tree,
    closed_form,
    slowest,
    slowest_seconds,
)

OVERLAP = overlap_local_sgd(pullback=0.6)
RANDOM = (ShiftedExponential(1.0, 0.5), RandomPauses(1.0, 0.3, 2.0))


@pytest.mark.parametrize(("m", "seconds"), [(1, 0), (2, 10), (4, 18), (5, 20.8)])
def test_a_ring_passes_an_mth_of_the_bytes_around_twice(m, seconds):
    # 2 (m − 1) messages, each of 1 second and of 16 / m bytes at 2 bytes per second
    assert Ring(2.0, 1.0).seconds(16, m) == pytest.approx(seconds, rel=1e-14)


@pytest.mark.parametrize(
    ("m", "levels"), [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (1024, 10), (1025, 11)]
)
def test_a_tree_sends_all_bytes_up_and_down_its_levels(m, levels):
    assert Tree(2.0, 1.0).seconds(16, m) == 2 * levels * (8 + 1)


@pytest.mark.parametrize(("m", "seconds"), [(1, 0), (2, 10), (4, 14), (5, 14.8)])
def test_two_exchanges_send_as_much_as_a_ring_but_wait_only_twice(m, seconds):
    # 2 exchanges of (m − 1) / m of 16 bytes at 2 bytes per second, and 1 second
    found = Exchanges(2.0, 1.0).seconds(16, m)
    assert found == pytest.approx(seconds, rel=1e-14)
    assert Exchanges(2.0).seconds(16, m) == pytest.approx(Ring(2.0).seconds(16, m))


@pytest.mark.parametrize("num_steps", [1, 5])
@pytest.mark.parametrize(
    ("compute", "mean", "variance"),
    [
        (Constant(0.5), 0.5, 0.0),
        (ShiftedExponential(1.0, 0.5), 1.5, 0.25),
        (RandomPauses(1.0, 0.3, 2.0), 1.6, 0.84),  # p (1 − p) d²
    ],
)
def test_steps_in_a_row_have_the_moments_of_a_sum(compute, mean, variance, num_steps):
    times = compute.sample(np.random.default_rng(0), (400, 500), num_steps)
    assert compute.means(3) == pytest.approx(mean)
    # 200,000 draws: the mean is off by 5 of its standard errors at most.
    off = 5 * np.sqrt(num_steps * variance / times.size)
    assert times.mean() == pytest.approx(num_steps * mean, abs=off + 1e-12)
    assert times.var() == pytest.approx(num_steps * variance, rel=0.03, abs=1e-12)


def test_one_worker_alone_is_slow():
    times = SlowWorker(0.5, 3.0).sample(np.random.default_rng(0), (2, 4), 2)
    assert times.tolist() == [[3.0, 1.0, 1.0, 1.0]] * 2


@pytest.mark.parametrize("compute", RANDOM)
def test_a_seed_decides_all_times(compute):
    first, same, other = (
        compute.sample(np.random.default_rng(seed), (3, 50)) for seed in (0, 0, 1)
    )
    assert np.array_equal(first, same)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize(
    ("compute", "num_steps", "m", "expected"),
    [
        (Constant(0.5), 3, 7, 1.5),
        (SlowWorker(0.5, 3.0), 2, 7, 3.0),
        (ShiftedExponential(1.0, 1.0), 1, 4, 1 + 25 / 12),  # 1 + 1/2 + 1/3 + 1/4
        (ShiftedExponential(1.0, 2.0), 2, 1, 6.0),  # one worker: the mean
        (ShiftedExponential(1.0, 2.0), 2, 2, 2 + 2 * 11 / 4),  # ∫ 1 − F² by parts
        (RandomPauses(1.0, 0.5, 3.0), 1, 2, 1 + 3 * 3 / 4),
        (RandomPauses(1.0, 1.0, 3.0), 4, 2, 16.0),
        (RandomPauses(1.0, 0.0, 3.0), 4, 2, 4.0),
    ],
)
def test_the_slowest_worker_by_hand(compute, num_steps, m, expected):
    assert slowest_seconds(compute, num_steps, m) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("num_steps", [1, 2, 40, 1000])
def test_sums_of_exponential_times_have_a_gamma_law(num_steps):
    x = np.linspace(0, num_steps + 9 * np.sqrt(num_steps) + 60, 1000)[1:]
    expected = special.gammaincc(num_steps, x)
    # Both lose as many digits as the logarithms of factorials have before the point.
    np.testing.assert_allclose(slowest._gamma_above(num_steps, x), expected, atol=2e-12)


@pytest.mark.parametrize("num_steps", [1, 2, 40, 1000])
@pytest.mark.parametrize("probability", [0.0, 1e-9, 0.1, 0.5, 0.99, 1.0])
def test_pauses_have_a_binomial_law(num_steps, probability):
    found = np.cumsum(slowest._binomial(num_steps, probability))
    expected = special.bdtr(np.arange(num_steps + 1), num_steps, probability)
    np.testing.assert_allclose(found, expected, atol=2e-12)


@pytest.mark.parametrize("compute", RANDOM)
@pytest.mark.parametrize("num_steps", [1, 3, 40])
@pytest.mark.parametrize("m", [2, 30])
def test_the_slowest_worker_is_that_of_many_draws(compute, num_steps, m):
    draws = compute.sample(np.random.default_rng(1), (20_000, m), num_steps).max(1)
    error = draws.std() / np.sqrt(draws.size)
    expected = slowest_seconds(compute, num_steps, m)
    assert draws.mean() == pytest.approx(expected, abs=5 * error)


@pytest.mark.parametrize(
    ("strategy", "seconds"),
    [
        (OVERLAP, 6.5),  # max(C, T)
        (cocod_sgd(), 6.5),
        (local_sgd(), 10.5),  # C + T
        (slowmo(momentum=0.7), 10.5),
        (easgd(moving_rate=0.9, num_workers=2), 10.5),
        (sync_sgd(), 4 * (1 + 2)),  # τ (c + t), each of a quarter of the bytes
    ],
)
def test_a_strategy_s_mean_of_decides_its_time(strategy, seconds):
    setting = Setting(strategy, 4, 6.0, 2, Constant(1.0), Ring(1.0, 0.25))
    time = closed_form(setting)
    assert (time.seconds, time.exposed) == (seconds, seconds - 4)
    assert time.utilisation == 4 / seconds
    assert time.idle.tolist() == [seconds - 4] * 2


def test_streamed_every_step_waits_for_its_piece():
    setting = Setting(OVERLAP, 4, 6.0, 2, Constant(1.0), Ring(1.0, 0.1), stream=True)
    assert closed_form(setting).seconds == pytest.approx(4 * (1.5 + 2 * 0.1))
