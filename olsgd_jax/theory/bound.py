"""The convergence theorem of Overlap Local-SGD: its bound and its conditions.

All models start equal, the local optimizer is plain SGD with γ = √(m / K) / L, the
anchor has no momentum, and K ≥ 60 m τ² / α². Then the virtual model
y = (1 − α) meanᵢ xᵢ + α z has

    (1 / K) Σₖ E ‖∇F(yₖ)‖²
        ≤ 4 L (F(y₀) − F_inf) / ((1 − α) √(m K))        initial_gap
        + 2 (1 − α) σ² / √(m K)                         noise
        + 2 m σ² / K (2 τ / ((2 − α) α) − 1)            local_noise
        + 30 m τ² κ² / (α² K)                           heterogeneity

The first two terms fall as 1 / √(m K), so m workers need an m-th of the steps. The
other two become negligible once K is far above m³ τ⁴ / α⁴.

The paper's theorem has 2 instead of 30. Its proof (appendix A) does not support that:
between the definition of D and the next line, 15 γ² τ² κ² / α² loses its 15. Other
points that a reader of the proof will notice:

- This module excludes α = 0 and α = 1, because the bound divides by α and by 1 − α. At
  α = 1 no gradient reaches y, and at α = 0 the workers never meet.
- σ² / m needs noise that is independent between workers and has mean 0 given all
  earlier steps. The paper's assumptions do not state this.
- ‖P − v 1ᵀ‖ ≤ 1 − α is derived from a result on eigenvalues, which in general implies
  nothing about a norm. It does hold here: P − v 1ᵀ is 1 − α times the matrix that
  subtracts the workers' mean, and 0 for the anchor, hence symmetric.
- The bound on the distances to y is taken from work on doubly stochastic matrices,
  where I − 1 1ᵀ / m cannot increase the norm of G. Here I − v 1ᵀ can, by a factor of up
  to ‖v‖ ‖1‖, but not if the anchor column of G is 0, as it is for gradients. Summed up
  for this P, the bound holds with 2 − α instead of the paper's 5.
- The lines before that bound have γ_eff where they should have γ, since G is not
  multiplied by v there. The bound itself has γ again.
- κ² is used only at the yₖ, so it is enough to bound it there.

Reference: J. Wang, H. Liang, G. Joshi, "Overlap Local-SGD: An Algorithmic
Approach to Hide Communication Delays in Distributed SGD", ICASSP 2020,
arXiv:2002.09539, theorem 1.
"""

import math
from fractions import Fraction
from typing import NamedTuple

from olsgd_jax._checks import check_count, check_number


class Bound(NamedTuple):
    """The four terms that bound the mean of ‖∇F(yₖ)‖² over all steps.

    >>> from olsgd_jax.theory import Bound
    >>> Bound(initial_gap=1.0, noise=0.5, local_noise=0.25, heterogeneity=0.0).total
    1.75
    """

    initial_gap: float  # from the start: 4 L (F(y₀) − F_inf) / ((1 − α) √(m K))
    noise: float  # from the mean gradient: 2 (1 − α) σ² / √(m K)
    local_noise: float  # from local steps: 2 m σ² / K (2 τ / ((2 − α) α) − 1)
    heterogeneity: float  # from different data: 30 m τ² κ² / (α² K)

    @property
    def total(self) -> float:
        """The bound itself: the sum of the four terms."""
        return sum(self)


def theorem_bound(
    *,
    num_workers: int,
    sync_period: int,
    pullback: float,
    num_steps: int,
    smoothness: float,
    initial_gap: float,
    noise: float,
    heterogeneity: float,
    as_printed: bool = False,
) -> Bound:
    """Gives the theorem's bound at its learning rate.

    Args:
      num_workers: number of workers, m.
      sync_period: τ.
      pullback: α in (0, 1).
      num_steps: K, total number of local steps, at least `smallest_num_steps`.
      smoothness: L, above 0; every worker's gradient is L-Lipschitz.
      initial_gap: F(y₀) − F_inf, the initial loss minus its infimum.
      noise: σ², a bound on E ‖gᵢ − ∇Fᵢ‖² of every worker, summed over dimensions.
      heterogeneity: κ², a bound on meanᵢ ‖∇Fᵢ − ∇F‖².
      as_printed: whether the last term has the 2 of the paper instead of the 30 that
        its proof supports.

    >>> from olsgd_jax.theory import theorem_bound
    >>> bound = theorem_bound(
    ...     num_workers=4, sync_period=2, pullback=0.5, num_steps=10_000,
    ...     smoothness=1.0, initial_gap=1.0, noise=1.0, heterogeneity=0.25,
    ... )
    >>> [round(term, 4) for term in bound]
    [0.04, 0.005, 0.0035, 0.048]
    >>> round(bound.total, 4)
    0.0965
    """
    check_count("num_steps", num_steps)
    check_number("smoothness", smoothness, 0, math.inf, "()")
    check_number("initial_gap", initial_gap, 0, math.inf, "[)")
    check_number("noise", noise, 0, math.inf, "[)")
    check_number("heterogeneity", heterogeneity, 0, math.inf, "[)")
    smallest = smallest_num_steps(num_workers, sync_period, pullback)
    if num_steps < smallest:
        raise ValueError(
            f"num_steps must be at least {smallest} (60 m τ² / α²) for num_workers "
            f"{num_workers}, sync_period {sync_period} and pullback {pullback}, "
            f"got {num_steps}"
        )
    m, tau, alpha, steps = num_workers, sync_period, float(pullback), num_steps
    root = math.sqrt(m * steps)
    return Bound(
        4 * smoothness * initial_gap / ((1 - alpha) * root),
        2 * (1 - alpha) * noise / root,
        2 * m * noise / steps * (2 * tau / ((2 - alpha) * alpha) - 1),
        (2 if as_printed else 30) * m * tau**2 * heterogeneity / (alpha**2 * steps),
    )


def smallest_num_steps(num_workers: int, sync_period: int, pullback: float) -> int:
    """Gives the smallest number of local steps that the theorem covers, 60 m τ² / α².

    Args:
      num_workers: number of workers, m.
      sync_period: τ.
      pullback: α in (0, 1).

    >>> from olsgd_jax.theory import smallest_num_steps
    >>> smallest_num_steps(num_workers=3, sync_period=1, pullback=0.6)
    500
    """
    check_count("num_workers", num_workers)
    check_count("sync_period", sync_period)
    check_number("pullback", pullback, 0, 1, "()")
    # The float 0.6 is slightly below 0.6, which would turn the 500 above into 501. Its
    # shortest decimal is the number that the user meant.
    alpha = Fraction(str(float(pullback)))
    return math.ceil(60 * num_workers * sync_period**2 / alpha**2)


def theorem_learning_rate(smoothness: float, num_workers: int, num_steps: int) -> float:
    """Gives the theorem's learning rate, γ = √(m / K) / L.

    Args:
      smoothness: L, above 0.
      num_workers: number of workers, m.
      num_steps: K, total number of local steps.

    >>> from olsgd_jax.theory import theorem_learning_rate
    >>> theorem_learning_rate(smoothness=2.0, num_workers=4, num_steps=10_000)
    0.01
    """
    check_number("smoothness", smoothness, 0, math.inf, "()")
    check_count("num_workers", num_workers)
    check_count("num_steps", num_steps)
    return math.sqrt(num_workers / num_steps) / smoothness
