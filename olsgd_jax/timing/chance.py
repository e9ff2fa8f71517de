"""Random compute: local steps whose time varies from step to step.

    ShiftedExponential   c + an exponential time with mean e
    RandomPauses         c, and with probability p a pause of length d

c is `seconds`. Steps and workers are independent. The sum of consecutive steps is drawn
directly from its own distribution, so a long round costs no more than a short one.
"""

import dataclasses
import math

import numpy as np
from jaxtyping import Float

from olsgd_jax._checks import check_number
from olsgd_jax.timing.compute import Constant, check_seconds


@dataclasses.dataclass(frozen=True)
class ShiftedExponential:
    """Every step takes its minimum time plus an exponential time.

    >>> from olsgd_jax.timing import ShiftedExponential
    >>> ShiftedExponential(0.5, extra=0.25).means(num_workers=2)
    array([0.75, 0.75])
    """

    seconds: float  # c, above 0: the minimum
    extra: float  # e, at least 0: the mean extra time

    def __post_init__(self) -> None:
        """Checks the numbers."""
        check_seconds(self.seconds)
        check_number("extra", self.extra, 0, math.inf, "[)")

    def sample(
        self, rng: np.random.Generator, shape: tuple[int, ...], num_steps: int = 1
    ) -> Float[np.ndarray, "*shape"]:
        """Draws the seconds of `num_steps` steps; the extra time has a gamma law."""
        extra = rng.standard_gamma(num_steps, shape)
        return num_steps * self.seconds + self.extra * extra

    def means(self, num_workers: int) -> Float[np.ndarray, " workers"]:
        """Gives the expected seconds of each worker's step."""
        return np.full(num_workers, float(self.seconds + self.extra))


@dataclasses.dataclass(frozen=True)
class RandomPauses:
    """A step is sometimes followed by a pause, as on shared machines.

    >>> from olsgd_jax.timing import RandomPauses
    >>> RandomPauses(0.5, probability=0.25, pause=1.0).means(num_workers=2)
    array([0.75, 0.75])
    """

    seconds: float  # c, above 0
    probability: float  # p, that a step is followed by a pause
    pause: float  # d, length of a pause in seconds

    def __post_init__(self) -> None:
        """Checks the numbers."""
        check_seconds(self.seconds)
        check_number("probability", self.probability, 0, 1, "[]")
        check_number("pause", self.pause, 0, math.inf, "[)")

    def sample(
        self, rng: np.random.Generator, shape: tuple[int, ...], num_steps: int = 1
    ) -> Float[np.ndarray, "*shape"]:
        """Draws the seconds of `num_steps` steps; the pauses have a binomial law."""
        pauses = rng.binomial(num_steps, self.probability, shape)
        return num_steps * self.seconds + self.pause * pauses

    def means(self, num_workers: int) -> Float[np.ndarray, " workers"]:
        """Gives the expected seconds of each worker's step."""
        return np.full(num_workers, float(self.seconds + self.probability * self.pause))


def with_stragglers(seconds: float, stragglers: float) -> Constant | ShiftedExponential:
    """Gives local steps with a random extra time.

    Args:
      seconds: minimum time of a step.
      stragglers: mean extra time, as a multiple of `seconds`.

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
