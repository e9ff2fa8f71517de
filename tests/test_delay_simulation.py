"""Simulated rounds against events in a heap, closed forms, and laws of waiting."""

import numpy as np
import pytest

from olsgd_jax import local_sgd, overlap_local_sgd, sync_sgd
from olsgd_jax.timing import (
    Constant,
    RandomPauses,
    Ring,
    Setting,
    ShiftedExponential,
    SlowWorker,
    Tree,
    closed_form,
    round_time,
    simulate,
    slowest_seconds,
)
from tests.events import Recorded, play

OVERLAP = overlap_local_sgd(pullback=0.6)
STEADY = (Constant(1.0), SlowWorker(1.0, 2.5))
RANDOM = (ShiftedExponential(0.7, 0.5), RandomPauses(1.0, 0.2, 2.0))
every_compute = pytest.mark.parametrize("compute", [*STEADY, *RANDOM])
SLOW, FAST = Ring(1.0), Ring(40.0, 0.01)  # a mean of 6 bytes takes far more, far less
every_network = pytest.mark.parametrize("network", [SLOW, Ring(3.0, 0.1), FAST])
STRATEGIES = {"overlap": (OVERLAP, False), "streamed": (OVERLAP, True)} | {
    strategy.name: (strategy, False) for strategy in (local_sgd(), sync_sgd())
}
every_strategy = pytest.mark.parametrize("name", STRATEGIES)


def make(name, compute, network, sync_period=3, num_workers=4):
    strategy, stream = STRATEGIES[name]
    return Setting(strategy, sync_period, 6.0, num_workers, compute, network, stream)


@every_strategy
@every_network
@pytest.mark.parametrize("m", [1, 2, 5])
def test_rounds_end_when_events_in_a_heap_do(name, network, m):
    num_rounds, is_delayed = 6, name in ("overlap", "streamed")
    means = 3 if name in ("sync_sgd", "streamed") else 1  # in every round
    mean_seconds = network.seconds(6.0 / means, m)
    for seed in range(20):
        times = np.random.default_rng(seed).lognormal(sigma=1, size=(3 * num_rounds, m))
        setting = make(name, Recorded(times), network, num_workers=m)
        assert closed_form(setting) is None
        time = simulate(setting, num_rounds=num_rounds, repetitions=1)
        steps = times.reshape(num_rounds * means, -1, m).sum(axis=1)
        end = play(steps, mean_seconds, is_delayed)
        assert time.seconds == pytest.approx(end / num_rounds, rel=1e-12)
        np.testing.assert_allclose(time.compute, times.sum(0) / num_rounds, rtol=1e-12)


@every_strategy
@every_network
@every_compute
@pytest.mark.parametrize("sync_period", [1, 3])
def test_closed_forms_are_what_is_simulated(name, compute, network, sync_period):
    setting = make(name, compute, network, sync_period)
    exact = closed_form(setting)
    if setting.is_delayed and compute in RANDOM:
        assert exact is None
        return
    times = [simulate(setting, num_rounds=20, seed=seed) for seed in range(30)]
    seconds = [time.seconds for time in times]
    error = 5 * np.std(seconds) / np.sqrt(len(seconds))
    assert np.mean(seconds) == pytest.approx(exact.seconds, rel=1e-12, abs=error)
    # 6,000 rounds of every worker: 4 % are at least 5 standard errors.
    computed = np.mean([time.compute for time in times], axis=0)
    np.testing.assert_allclose(computed, exact.compute, rtol=0.04)
    assert round_time(setting).seconds == exact.seconds


@every_network
@every_compute
def test_delayed_rounds_are_as_long_as_they_must_and_no_longer_than_blocking_ones(
    compute, network
):
    delayed, blocking = (
        make(name, compute, network, num_workers=16)
        for name in ("overlap", "local_sgd")
    )
    own, other = simulate(delayed, seed=3), simulate(blocking, seed=3)
    np.testing.assert_array_equal(own.compute, other.compute)  # the same chance
    assert max(own.compute.max(), delayed.mean_seconds) <= own.seconds * (1 + 1e-12)
    assert own.seconds <= other.seconds
    assert np.all(own.idle >= -1e-12)
    # Over two rounds the slowest of the first and one mean pass in any case.
    slowest = slowest_seconds(compute, 3, 16)
    assert own.seconds >= 0.98 * (slowest + delayed.mean_seconds) / 2


@every_strategy
@every_compute
@pytest.mark.parametrize("kind", [Ring, Tree])
def test_a_better_network_is_never_slower(name, compute, kind):
    links = [(1.0, 0.1), (1.0, 0.05), (2.0, 0.05), (30.0, 0.05), (30.0, 0.0)]
    seconds = [simulate(make(name, compute, kind(*x))).seconds for x in links]
    assert seconds == sorted(seconds, reverse=True)


@every_strategy
@pytest.mark.parametrize("compute", RANDOM)
def test_a_seed_decides_all_of_a_simulation(name, compute):
    setting = make(name, compute, Ring(3.0))
    first, same, other = (simulate(setting, seed=seed).seconds for seed in (5, 5, 6))
    assert first == same != other
    if setting.is_delayed:
        assert round_time(setting, seed=5).seconds == first


def test_repetitions_are_independent_and_averaged():
    setting = make("overlap", RANDOM[0], FAST)
    alone, many = (
        [simulate(setting, repetitions=n, seed=i).seconds for i in range(40)]
        for n in (1, 25)
    )
    # A mean of 25 has a fifth of the spread; 0.35 leaves room for that of 40 draws.
    assert np.std(many) < 0.35 * np.std(alone)
    assert np.mean(many) == pytest.approx(np.mean(alone), abs=3 * np.std(alone) / 6)


@pytest.mark.parametrize("option", ["num_rounds", "repetitions"])
def test_nothing_to_simulate_is_refused(option):
    with pytest.raises(ValueError, match=f"{option} must be at least 1, got 0"):
        simulate(make("overlap", RANDOM[0], FAST), **{option: 0})
