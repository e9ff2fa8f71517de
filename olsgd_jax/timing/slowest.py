"""The slowest worker: the expected time until all workers have taken their local steps.

Blocking strategies wait for it. The largest of m independent times with distribution
function F has the mean ∫ (1 − F(x)ᵐ) dx from 0. For one exponential time this is the
harmonic number 1 + 1/2 + … + 1/m. A sum of exponential times has a gamma law. The
number of pauses has a binomial law, for which the integral is a sum. Both laws are sums
of terms with known ratios. Each sum starts at its largest term, so no term overflows.
"""

import math

import numpy as np
from jaxtyping import Float

from olsgd_jax._checks import check_count
from olsgd_jax.timing.chance import RandomPauses, ShiftedExponential
from olsgd_jax.timing.compute import Compute, Constant, SlowWorker

_POINTS = 20_000  # of the integral, for a relative error below 1e-12
_NEGLIGIBLE = 1e-18  # next to a probability of nearly 1


def slowest_seconds(compute: Compute, num_steps: int, num_workers: int) -> float | None:
    """Gives the expected seconds until all workers have taken their local steps.

    Args:
      compute: how long steps take.
      num_steps: consecutive steps of each worker.
      num_workers: number of workers, m.

    Returns:
      The seconds, or None for a `Compute` of your own.

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
            at_most = np.cumsum(_binomial(num_steps, compute.probability))[:-1]
            pauses = np.sum(1 - np.minimum(at_most, 1) ** num_workers)
            return float(num_steps * compute.seconds + compute.pause * pauses)
    return None


def _longest_extra(num_steps: int, num_workers: int) -> float:
    """Gives the expected maximum of m sums of exponential times with mean 1."""
    if num_steps == 1:
        return float(np.sum(1 / np.arange(1, num_workers + 1)))
    # Beyond the end the integrand is below 1e-16: a gamma variable of shape n exceeds
    # n + √(2 n t) + t with a probability of at most exp(−t).
    t = math.log(num_workers) + 37
    end = num_steps + math.sqrt(2 * num_steps * t) + t
    x = np.linspace(0, end, _POINTS)
    not_yet = 1 - (1 - _gamma_above(num_steps, x[1:])) ** num_workers
    return float(np.trapezoid(np.concatenate([[1.0], not_yet]), x))


def _binomial(n: int, p: float) -> Float[np.ndarray, " _"]:
    """Gives the probabilities of 0 to n pauses in n steps.

    >>> _binomial(2, 0.5).tolist()
    [0.25, 0.5, 0.25]
    """
    mode = min(int((n + 1) * p), n)
    up, down = np.arange(mode, n), np.arange(mode, 0, -1)
    above = np.cumprod((n - up) * p / ((up + 1) * (1 - p)))
    below = np.cumprod(down * (1 - p) / ((n - down + 1) * p))
    weights = np.concatenate([below[::-1], [1.0], above])
    return weights / weights.sum()


def _gamma_above(n: int, x: Float[np.ndarray, " _"]) -> Float[np.ndarray, " _"]:
    """Gives the probability that n exponential times of mean 1 add up to more than x.

    It equals the probability of fewer than n Poisson events before x, Σ xᵏ/k! e⁻ˣ over
    k < n. For x below n the complement is summed, over k ≥ n, so that the sum starts at
    its largest term.

    >>> _gamma_above(1, np.array([0.5, 2.0])).round(6).tolist()  # e⁻ˣ
    [0.606531, 0.135335]
    """
    is_below = x <= n
    term = np.exp(n * np.log(x) - x - math.lgamma(n + 1))  # k = n
    total = np.where(is_below, term, 0)
    j = 1
    while term.max() > _NEGLIGIBLE:
        term = term * np.where(is_below, x / (n + j), max(n - j + 1, 0) / x)
        total += term
        j += 1
    return np.where(is_below, 1 - total, total)
