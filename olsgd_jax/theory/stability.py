"""Stability: whether a strategy diverges on a quadratic.

A round multiplies the consensus of all workers by one matrix, and every worker's
deviation from it by another (see `linear_round`). The radius of each is the largest
modulus of its eigenvalues:

    below 1    it shrinks by this factor every round, in the long run
    1          it stays: a consensus on a flat loss, or a disagreement that never heals
    above 1    the run diverges

A learning rate γ and a curvature h matter only as γ h, so the curvature under
`optax.sgd(1.0)` is γ h itself. If nothing but the contraction c of a round is known,
take one local step of `optax.sgd(1.0)` on the curvature 1 − c.

A loss has directions of many curvatures, from 0 to its sharpest, and one unstable
direction is enough to diverge.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np
import optax
from jaxtyping import Bool

from olsgd_jax._checks import check_count, check_number
from olsgd_jax.strategies.base import Strategy
from olsgd_jax.theory.linear_round import Curvatures, LinearRound, linear_rounds

_GROWTH = 1e-7  # per round; what grows by less may do so by rounding
_SCANNED = np.geomspace(1e-6, 1e6, 12 * 64 + 1)  # curvatures, 4 % apart
_COARSE, _HALVINGS = 20, 6  # values tried on either side of an argument, then between


class Radii(NamedTuple):
    """The radii of a round, one for every curvature.

    >>> import numpy as np
    >>> from olsgd_jax.theory import Radii
    >>> Radii(np.array([0.5, 1.2]), np.array([1.0, 0.5])).is_stable
    array([ True, False])
    """

    consensus: Curvatures
    disagreement: Curvatures

    @property
    def is_stable(self) -> Bool[np.ndarray, "*curvatures"]:
        """Whether neither of the two grows."""
        return np.asarray(np.maximum(*self) <= 1 + _GROWTH)


def round_radii(
    strategy: Strategy,
    optimizer: optax.GradientTransformation,
    *,
    sync_period: int,
    curvature: float | Curvatures,
) -> Radii:
    """Gives the radii of the consensus and of a worker's deviation from it.

    Args:
      strategy: any strategy whose mix is linear, including your own.
      optimizer: the local optimizer: SGD, also with momentum and weight decay. Of a
        schedule, only the first rate counts.
      sync_period: τ, local steps in a round.
      curvature: h, or an array of curvatures.

    Raises:
      ValueError: if the strategy or the optimizer is not linear.

    >>> import numpy as np, optax
    >>> from olsgd_jax import cocod_sgd
    >>> from olsgd_jax.theory import round_radii
    >>> curvatures = np.array([1.0, 4.0])
    >>> radii = round_radii(
    ...     cocod_sgd(), optax.sgd(0.1), sync_period=1, curvature=curvatures
    ... )
    >>> radii.consensus.round(6), radii.disagreement.round(6)  # 1 − γ h, γ h
    (array([0.9, 0.6]), array([0.1, 0.4]))
    """
    check_count("sync_period", sync_period)
    rounds, curvature = linear_rounds(strategy, optimizer), np.asarray(curvature, float)
    return Radii(*(_radius(x, sync_period, curvature) for x in rounds))


class Limits(NamedTuple):
    """The curvatures up to which each part of a round is stable.

    >>> from olsgd_jax.theory import Limits
    >>> min(Limits(consensus=2.0, disagreement=1.0))  # all is stable up to here
    1.0
    """

    consensus: float
    disagreement: float


def stable_curvature(
    strategy: Strategy, optimizer: optax.GradientTransformation, *, sync_period: int
) -> Limits:
    """Gives the largest curvature up to which every curvature is stable.

    Under SGD, the limit divided by the sharpest curvature of a loss is the factor by
    which the learning rate may grow, or must fall.

    Args:
      strategy: as in `round_radii`.
      optimizer: as in `round_radii`.
      sync_period: τ, local steps in a round.

    Returns:
      The limits, to six digits; 0 if the smallest curvatures are unstable, infinity if
      all are stable. Curvatures from 1e-6 to 1e6 are tried in steps of 4 %, so an
      unstable interval that is narrower goes unnoticed.

    >>> import optax
    >>> from olsgd_jax import cocod_sgd
    >>> from olsgd_jax.theory import stable_curvature
    >>> limits = stable_curvature(cocod_sgd(), optax.sgd(1.0), sync_period=1)
    >>> [round(x, 6) for x in limits]
    [2.0, 1.0]
    """
    check_count("sync_period", sync_period)
    rounds = linear_rounds(strategy, optimizer)
    return Limits(*(_limit(x, sync_period) for x in rounds))


def nearest_stable(
    build: Callable[..., Strategy],
    args: Mapping[str, float],
    optimizer: optax.GradientTransformation,
    *,
    sync_period: int,
    curvature: float,
) -> dict[str, float]:
    """Gives for each argument of a strategy the nearest value that is stable.

    Args:
      build: builds the strategy.
      args: its arguments; whole numbers stay as they are.
      optimizer: as in `round_radii`.
      sync_period: τ, local steps in a round.
      curvature: h, the sharpest curvature of the loss.

    Returns:
      For each argument, the nearest value with which every curvature up to this one is
      stable while the other arguments keep their values; without the arguments that
      have none. Values from 0 to 1 are tried, and to twice the given one if that is
      above 1.

    >>> import optax
    >>> from olsgd_jax import slowmo
    >>> from olsgd_jax.theory import nearest_stable
    >>> near = nearest_stable(
    ...     slowmo,
    ...     {"momentum": 0.5, "step_size": 2.0},
    ...     optax.sgd(1.0),
    ...     sync_period=1,
    ...     curvature=1.8,
    ... )
    >>> {name: round(value, 2) for name, value in near.items()}
    {'momentum': 0.8, 'step_size': 1.67}
    """
    check_number("curvature", curvature, 0, float("inf"), "()")
    build(**args)  # raises if these are not allowed

    def is_stable(name: str, value: float) -> bool | None:
        try:
            strategy = build(**{**args, name: value})
        except ValueError:  # not allowed
            return None
        limits = stable_curvature(strategy, optimizer, sync_period=sync_period)
        return min(limits) >= curvature

    near = {}
    for name, value in args.items():
        if isinstance(value, float):
            ends = 0.0, (1.0 if value <= 1 else 2 * value)
            ways = [_first_stable(partial(is_stable, name), value, x) for x in ends]
            found = [(abs(x - value), x) for x in ways if x is not None]
            if found:
                near[name] = min(found)[1]
    return near


def _first_stable(
    is_stable: Callable[[float], bool | None], begin: float, end: float
) -> float | None:
    """Gives the first stable value on the way to `end`, if there is one."""
    last = begin
    for value in np.linspace(begin, end, _COARSE + 1).tolist():
        found = is_stable(value)
        if found:
            break
        if found is None:
            return None
        last = value
    else:
        return None
    for _ in range(_HALVINGS):
        middle = (last + value) / 2
        last, value = (last, middle) if is_stable(middle) else (middle, value)
    return value


def _limit(run: LinearRound, sync_period: int) -> float:
    curvatures = _SCANNED
    for _ in range(4):  # each but the first divides the interval by 64
        radius = _radius(run, sync_period, curvatures)
        unstable = np.flatnonzero(radius > 1 + _GROWTH)
        if not unstable.size:
            return float("inf")
        if unstable[0] == 0:
            return 0.0
        curvatures = np.linspace(*curvatures[unstable[0] - 1 :][:2], num=65)
    return float(curvatures[0])


def _radius(run: LinearRound, sync_period: int, curvature: Curvatures) -> Curvatures:
    """Gives the largest modulus of the eigenvalues, per round.

    It is infinity where a matrix is too large for floating point.
    """
    matrices = run.matrix(sync_period, curvature)
    fits = np.asarray(np.isfinite(matrices).all(axis=(-2, -1)))
    matrices = np.where(fits[..., None, None], matrices, 0.0)
    radius = np.abs(np.linalg.eigvals(matrices)).max(axis=-1, initial=0.0)
    return np.asarray(np.where(fits, radius, np.inf) ** (1 / run.num_turns))
