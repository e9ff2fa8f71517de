"""Compute by chance: local steps that take longer at some times than at others.

    ShiftedExponential   c + an exponential time of mean e
    RandomPauses         c, and with probability p a pause of length d

c is `seconds`. Steps and workers are independent. Steps in a row are drawn as one sum,
by its own distribution, so that a long round costs no more than a short one.
"""

import dataclasses
import math

import numpy as np
from jaxtyping import Float

from olsgd_jax._checks import check_number
from olsgd_jax.timing.compute import Constant, check_seconds


@dataclasses.dataclass(frozen=True)
class ShiftedExponential:
    """Every step takes an exponential time on top of its least time.

    >>> from olsgd_jax.timing import ShiftedExponential
    >>> ShiftedExponential(0.5, extra=0.25).means(num_workers=2)
    array([0.75, 0.75])
    """

    seconds: float  # c, above 0: the least
    extra: float  # e, at least 0: the mean of what is added

    def __post_init__(self) -> None:
        """Checks the numbers."""
        check_seconds(self.seconds)
        check_number("extra", self.extra, 0, math.inf, "[)")

    def sample(
        self, rng: np.random.Generator, shape: tuple[int, ...], num_steps: int = 1
    ) -> Float[np.ndarray, "*shape"]:
        """Draws the seconds of `num_steps` steps: their extra time has a gamma law."""
        extra = rng.standard_gamma(num_steps, shape)
        return num_steps * self.seconds + self.extra * extra

    def means(self, num_workers: int) -> Float[np.ndarray, " workers"]:
        """Gives the expected seconds of each worker's step."""
        return np.full(num_workers, float(self.seconds + self.extra))


@dataclasses.dataclass(frozen=True)
class RandomPauses:
    """Now and then a step is followed by a pause, as where machines are shared.

    >>> from olsgd_jax.timing import RandomPauses
    >>> RandomPauses(0.5, probability=0.25, pause=1.0).means(num_workers=2)
    array([0.75, 0.75])
    """

    seconds: float  # c, above 0
    probability: float  # p, of a pause after a step
    pause: float  # d, its seconds

    def __post_init__(self) -> None:
        """Checks the numbers."""
        check_seconds(self.seconds)
        check_number("probability", self.probability, 0, 1, "[]")
        check_number("pause", self.pause, 0, math.inf, "[)")

    def sample(
        self, rng: np.random.Generator, shape: tuple[int, ...], num_steps: int = 1
    ) -> Float[np.ndarray, "*shape"]:
        """Draws the seconds of `num_steps` steps: their pauses have a binomial law."""
        pauses = rng.binomial(num_steps, self.probability, shape)
        return num_steps * self.seconds + self.pause * pauses

    def means(self, num_workers: int) -> Float[np.ndarray, " workers"]:
        """Gives the expected seconds of each worker's step."""
        return np.full(num_workers, float(self.seconds + self.probability * self.pause))


def with_stragglers(seconds: float, stragglers: float) -> Constant | ShiftedExponential:
    """Gives local steps with an extra time by chance.

    Args:
      seconds: the least time of a step.
      stragglers: the mean of what is added, in steps.

    >>> from olsgd_jax.timing import with_stragglers
    >>> with_stragglers(0.5, stragglers=0.1)
    ShiftedExponential(seconds=0.5, extra=0.05)
    >>> with_stragglers(0.5, stragglers=0)
    Constant(seconds=0.5)
    """
    check_number("stragglers", stragglers, 0, math.inf, "[)")
    if not stragglers:
        return Constant(seconds)
    return ShiftedExponential(seconds, stragglers * seconds)
