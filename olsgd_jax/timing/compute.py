"""Compute: how long local steps take, without randomness.

    Constant     c
    SlowWorker   f c for worker 0, c for all others

c is `seconds`. Random times are in `chance`.
"""

import dataclasses
import math
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from olsgd_jax._checks import check_number


@runtime_checkable
class Compute(Protocol):
    """How long local steps take; you can pass a class of your own.

    >>> from olsgd_jax.timing import Compute, Constant
    >>> isinstance(Constant(0.1), Compute)
    True
    """

    def sample(
        self, rng: np.random.Generator, shape: tuple[int, ...], num_steps: int = 1
    ) -> Float[np.ndarray, "*shape"]:
        """Draws the seconds of `num_steps` consecutive steps; last axis: workers."""
        ...

    def means(self, num_workers: int) -> Float[np.ndarray, " workers"]:
        """Gives the expected seconds of each worker's step."""
        ...


@dataclasses.dataclass(frozen=True)
class Constant:
    """All steps take the same time.

    >>> import numpy as np
    >>> from olsgd_jax.timing import Constant
    >>> Constant(0.5).sample(np.random.default_rng(0), shape=(3,), num_steps=2)
    array([1., 1., 1.])
    """

    seconds: float  # c, above 0

    def __post_init__(self) -> None:
        """Checks the number."""
        check_seconds(self.seconds)

    def sample(
        self, rng: np.random.Generator, shape: tuple[int, ...], num_steps: int = 1
    ) -> Float[np.ndarray, "*shape"]:
        """Gives the seconds of `num_steps` steps, which are not random."""
        del rng
        return np.full(shape, float(num_steps * self.seconds))

    def means(self, num_workers: int) -> Float[np.ndarray, " workers"]:
        """Gives the seconds of each worker's step."""
        return np.full(num_workers, float(self.seconds))


@dataclasses.dataclass(frozen=True)
class SlowWorker:
    """Worker 0 takes `factor` times as long as all others.

    >>> from olsgd_jax.timing import SlowWorker
    >>> SlowWorker(0.5, factor=3).means(num_workers=4)
    array([1.5, 0.5, 0.5, 0.5])
    """

    seconds: float  # c, above 0
    factor: float  # f, at least 1

    def __post_init__(self) -> None:
        """Checks the numbers."""
        check_seconds(self.seconds)
        check_number("factor", self.factor, 1, math.inf, "[)")

    def sample(
        self, rng: np.random.Generator, shape: tuple[int, ...], num_steps: int = 1
    ) -> Float[np.ndarray, "*shape"]:
        """Gives the seconds of `num_steps` steps, which are not random."""
        del rng
        return np.broadcast_to(num_steps * self.means(shape[-1]), shape)

    def means(self, num_workers: int) -> Float[np.ndarray, " workers"]:
        """Gives the seconds of each worker's step."""
        seconds = np.full(num_workers, float(self.seconds))
        seconds[0] *= self.factor
        return seconds


def check_seconds(seconds: float) -> None:
    """Raises unless the time of a step is above 0."""
    check_number("seconds", seconds, 0, math.inf, "()")
