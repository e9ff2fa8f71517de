"""Hiding: how long rounds must be for the mean to cost no time."""

import dataclasses

from olsgd_jax.timing.setting import Setting

_ROUNDING = 1 - 1e-12  # 3 steps of 0.7 seconds cover a mean of 2.1


def smallest_hiding_period(setting: Setting) -> int | None:
    """Gives the smallest sync period whose local steps cover the mean.

    They cover it if the expected time of the slowest worker's steps is at least the
    time of the mean. A longer round has more time to send the same models. If the
    models are streamed, it sends a smaller fragment with every step.

    Args:
      setting: what the time depends on; its own sync period is ignored.

    Returns:
      The sync period, or None if none is long enough, as for a mean that is not
      delayed, and for fragments whose latency alone exceeds a step.

    >>> from dataclasses import replace
    >>> from olsgd_jax import local_sgd, overlap_local_sgd
    >>> from olsgd_jax.timing import Constant, Ring, Setting, smallest_hiding_period
    >>> setting = Setting(
    ...     overlap_local_sgd(pullback=0.6), sync_period=1, bytes_per_round=4.4e7,
    ...     num_workers=16, compute=Constant(0.02), network=Ring(1.25e8, 1e-3),
    ... )
    >>> smallest_hiding_period(setting)
    35
    >>> print(smallest_hiding_period(replace(setting, stream=True)))
    None
    >>> print(smallest_hiding_period(replace(setting, strategy=local_sgd())))
    None
    """
    if not setting.is_delayed:
        return None
    step = float(setting.compute.means(setting.num_workers).max())

    def covers(sync_period: int) -> bool:
        longer = dataclasses.replace(setting, sync_period=sync_period)
        return longer.steps_per_mean * step >= _ROUNDING * longer.mean_seconds

    if covers(1):
        return 1
    if setting.stream and step <= setting.network.seconds(0, setting.num_workers):
        return None
    too_short, enough = 1, 2
    while not covers(enough):
        too_short, enough = enough, 2 * enough
    while enough - too_short > 1:
        middle = (too_short + enough) // 2
        too_short, enough = (too_short, middle) if covers(middle) else (middle, enough)
    return enough
