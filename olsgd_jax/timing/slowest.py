"""The slowest worker: how long the local steps of all workers together are expected.

Blocking strategies wait for it. The largest of m independent times with distribution
function F has the mean ∫ (1 − F(x)ᵐ) dx from 0. For one exponential time this is the
harmonic number 1 + 1/2 + … + 1/m; sums of them have a gamma law, and pauses have a
binomial one, for which the integral is a sum.
"""

import math

import numpy as np
from scipy import special

from olsgd_jax._checks import check_count
from olsgd_jax.timing.chance import RandomPauses, ShiftedExponential
from olsgd_jax.timing.compute import Compute, Constant, SlowWorker

_POINTS = 20_000  # of the integral: enough for a relative error below 1e-12


def slowest_seconds(compute: Compute, num_steps: int, num_workers: int) -> float | None:
    """Gives the expected seconds until all workers have done their local steps.

    Args:
      compute: how long steps take.
      num_steps: of each worker, in a row.
      num_workers: m.

    Returns:
      None for a compute that is not one of this package.

    >>> from olsgd_jax.timing import ShiftedExponential, slowest_seconds
    >>> compute = ShiftedExponential(1.0, extra=1.0)
    >>> slowest_seconds(compute, num_steps=1, num_workers=2)  # 1 + (1 + 1/2)
    2.5
    """
    check_count("num_steps", num_steps)
    check_count("num_workers", num_workers)
    match compute:
        case Constant() | SlowWorker():
            return float(num_steps * compute.means(num_workers).max())
        case ShiftedExponential():
            extra = compute.extra * _longest_extra(num_steps, num_workers)
            return num_steps * compute.seconds + extra
        case RandomPauses():
            below = special.bdtr(np.arange(num_steps), num_steps, compute.probability)
            pauses = np.sum(1 - below**num_workers)
            return float(num_steps * compute.seconds + compute.pause * pauses)
    return None


def _longest_extra(num_steps: int, num_workers: int) -> float:
    """Gives the expected largest of m sums of exponential times of mean 1."""
    if num_steps == 1:
        return float(np.sum(1 / np.arange(1, num_workers + 1)))
    # Beyond this the integrand is below 1e-16: a gamma variable of shape n exceeds
    # n + √(2 n t) + t with a probability of at most exp(−t).
    t = math.log(num_workers) + 37
    end = num_steps + math.sqrt(2 * num_steps * t) + t
    x = np.linspace(0, end, _POINTS)
    return float(np.trapezoid(1 - special.gammainc(num_steps, x) ** num_workers, x))
