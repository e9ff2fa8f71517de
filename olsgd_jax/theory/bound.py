"""The convergence theorem of Overlap Local-SGD: its bound, and what it asks for.

All models start equal, the local optimizer is plain SGD with γ = √(m / K) / L, the
anchor has no momentum, and K ≥ 60 m τ² / α². Then the virtual model
y = (1 − α) meanᵢ xᵢ + α z has

    (1 / K) Σₖ E ‖∇F(yₖ)‖²
        ≤ 4 L (F(y₀) − F_inf) / ((1 − α) √(m K))        initial_gap
        + 2 (1 − α) σ² / √(m K)                         noise
        + 2 m σ² / K (2 τ / ((2 − α) α) − 1)            local_noise
        + 30 m τ² κ² / (α² K)                           heterogeneity

The first two fall as 1 / √(m K), so m workers need an m-th of the steps; the others
are small compared to them once K is far above m³ τ⁴ / α⁴.

The theorem prints 2 for the 30. Its proof (appendix A) does not give that: between
the definition of D and the next line, 15 γ² τ² κ² / α² loses its 15. What else a
reader of the proof meets:

- The ends of α are left out here: the bound divides by α and by 1 − α. At α = 1 no
  gradient reaches y, and at α = 0 the workers never meet.
- σ² / m needs noise that is independent from worker to worker, and of mean 0 given
  all earlier steps. The assumptions do not say so.
- ‖P − v 1ᵀ‖ ≤ 1 − α is quoted from a result on eigenvalues, which in general says
  nothing of a norm. It holds: P − v 1ᵀ is 1 − α times the matrix that subtracts the
  workers' mean, and 0 for the anchor, hence symmetric.
- The bound on the distances to y is quoted from work on doubly stochastic matrices,
  where I − 1 1ᵀ / m lengthens no G. Here I − v 1ᵀ can, by up to ‖v‖ ‖1‖; but no G
  whose anchor column is 0, as that of gradients is. Summed up for this P, the bound
  holds with 2 − α in place of its 5.
- γ_eff stands for γ in the lines before that bound, where G is not multiplied by v;
  the bound itself has γ again.
- κ² is used at the yₖ alone, so it is enough to bound it there.

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

    initial_gap: float  # of the start: 4 L (F(y₀) − F_inf) / ((1 − α) √(m K))
    noise: float  # of the mean gradient: 2 (1 − α) σ² / √(m K)
    local_noise: float  # that local steps add: 2 m σ² / K (2 τ / ((2 − α) α) − 1)
    heterogeneity: float  # of the workers' data: 30 m τ² κ² / (α² K)

    @property
    def total(self) -> float:
        """The bound itself, the sum of its terms."""
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
      num_workers: m.
      sync_period: τ.
      pullback: α in (0, 1).
      num_steps: K, local steps in all, at least `smallest_num_steps`.
      smoothness: L, above 0; every worker's gradient is L-Lipschitz.
      initial_gap: F(y₀) − F_inf, from the start to the lowest loss there is.
      noise: σ², at least E ‖gᵢ − ∇Fᵢ‖² of every worker, in all dimensions together.
      heterogeneity: κ², at least meanᵢ ‖∇Fᵢ − ∇F‖².
      as_printed: whether the last term has the 2 of the paper, in place of the 30
        that its proof supports.

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
    """Gives the fewest local steps that the theorem speaks of, 60 m τ² / α².

    Args:
      num_workers: m.
      sync_period: τ.
      pullback: α in (0, 1).

    >>> from olsgd_jax.theory import smallest_num_steps
    >>> smallest_num_steps(num_workers=3, sync_period=1, pullback=0.6)
    500
    """
    check_count("num_workers", num_workers)
    check_count("sync_period", sync_period)
    check_number("pullback", pullback, 0, 1, "()")
    # The float 0.6 lies a little below 0.6, and would make the 500 above 501. Its
    # shortest decimal is the number that was meant.
    alpha = Fraction(str(float(pullback)))
    return math.ceil(60 * num_workers * sync_period**2 / alpha**2)


def theorem_learning_rate(smoothness: float, num_workers: int, num_steps: int) -> float:
    """Gives the theorem's learning rate, γ = √(m / K) / L.

    Args:
      smoothness: L, above 0.
      num_workers: m.
      num_steps: K, local steps in all.

    >>> from olsgd_jax.theory import theorem_learning_rate
    >>> theorem_learning_rate(smoothness=2.0, num_workers=4, num_steps=10_000)
    0.01
    """
    check_number("smoothness", smoothness, 0, math.inf, "()")
    check_count("num_workers", num_workers)
    check_count("num_steps", num_steps)
    return math.sqrt(num_workers / num_steps) / smoothness
