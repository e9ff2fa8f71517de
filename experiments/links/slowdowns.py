"""Slowdowns: local steps that take longer, always or at random.

`unit` is how long a step sleeps if nothing slows it down. The extra time is in units:

    none          nothing
    slow_worker   0.3 for worker 0, at every step
    random        0.3 at random steps: at any time, one worker on average
    exponential   an exponential time of mean 0.3
    pauses        5 after one step in 50
"""

from collections.abc import Callable

from olsgd_jax.timing import (
    Compute,
    Constant,
    RandomPauses,
    ShiftedExponential,
    SlowWorker,
)

SLOWDOWNS: dict[str, Callable[[float, float, int], Compute]] = {
    "none": lambda seconds, unit, num_workers: Constant(seconds),
    "slow_worker": lambda seconds, unit, num_workers: SlowWorker(
        seconds, factor=1 + 0.3 * unit / seconds
    ),
    "random": lambda seconds, unit, num_workers: RandomPauses(
        seconds, probability=1 / num_workers, pause=0.3 * unit
    ),
    "exponential": lambda seconds, unit, num_workers: ShiftedExponential(
        seconds, extra=0.3 * unit
    ),
    "pauses": lambda seconds, unit, num_workers: RandomPauses(
        seconds, probability=0.02, pause=5 * unit
    ),
}
"""By name; each takes the seconds of an undisturbed step, the unit and m."""
