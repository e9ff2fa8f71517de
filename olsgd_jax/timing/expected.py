"""Closed forms: the expected time of a round, without a simulation.

C is the time of a round's local steps and T the time of its mean. c and t are the same
times for a single step.

    blocking     E maxᵢ Cᵢ + T
    every step   τ (E maxᵢ cᵢ + t)
    delayed      max(C, T) of the slowest worker        if C is not random
    streamed     τ max(c, t) of the slowest worker      if c is not random

If C is random, a delayed round has no such form, but it has bounds: it takes at least
the mean of C, at least T, at least (E maxᵢ Cᵢ + T) / 2, and at most as long as a
blocking round. The third bound holds because two rounds take at least E maxᵢ Cᵢ + T:
the mean of a round starts only when the slowest worker of the round before is done.
"""

from olsgd_jax.timing.compute import Constant, SlowWorker
from olsgd_jax.timing.setting import Setting
from olsgd_jax.timing.simulation import simulate
from olsgd_jax.timing.slowest import slowest_seconds
from olsgd_jax.timing.times import RoundTime


def closed_form(setting: Setting) -> RoundTime | None:
    """Gives the expected time of a round, or None if it has no closed form.

    >>> from olsgd_jax import local_sgd, overlap_local_sgd, sync_sgd
    >>> from olsgd_jax.timing import Constant, Ring, Setting, closed_form
    >>> def seconds(strategy, models):
    ...     return closed_form(Setting(
    ...         strategy, sync_period=4, bytes_per_round=models * 1e9,
    ...         num_workers=2, compute=Constant(0.5), network=Ring(bandwidth=1e9),
    ...     )).seconds
    >>> seconds(sync_sgd(), models=4)  # 4 (0.5 + 1)
    6.0
    >>> seconds(local_sgd(), models=1)  # 4 · 0.5 + 1
    3.0
    >>> seconds(overlap_local_sgd(pullback=0.6), models=1)  # max(4 · 0.5, 1)
    2.0
    """
    compute, num_workers = setting.compute, setting.num_workers
    if setting.is_delayed and not isinstance(compute, Constant | SlowWorker):
        return None
    slowest = slowest_seconds(compute, setting.steps_per_mean, num_workers)
    if slowest is None:
        return None
    mean = setting.mean_seconds
    one = max(slowest, mean) if setting.is_delayed else slowest + mean
    own = setting.sync_period * compute.means(num_workers)
    return RoundTime(setting.means_per_round * one, own)


def round_time(
    setting: Setting, *, num_rounds: int = 100, repetitions: int = 10, seed: int = 0
) -> RoundTime:
    """Gives the time of a round by its closed form, or simulates it if it has none.

    Args:
      setting: what the time depends on.
      num_rounds: consecutive rounds to simulate.
      repetitions: independent simulations, which are averaged.
      seed: seed of the simulation.

    >>> from olsgd_jax import cocod_sgd
    >>> from olsgd_jax.timing import Ring, Setting, SlowWorker, round_time
    >>> setting = Setting(
    ...     cocod_sgd(), sync_period=4, bytes_per_round=1e9, num_workers=2,
    ...     compute=SlowWorker(0.5, factor=3), network=Ring(bandwidth=1e9),
    ... )
    >>> time = round_time(setting)
    >>> time.seconds, time.idle.tolist()  # worker 1 waits for the slow worker
    (6.0, [0.0, 4.0])
    """
    exact = closed_form(setting)
    if exact is not None:
        return exact
    return simulate(setting, num_rounds=num_rounds, repetitions=repetitions, seed=seed)
