"""When a checkpoint is due."""

import math
import time

import jax
import numpy as np
from jax.experimental import multihost_utils

from olsgd_jax._checks import check_count, check_number


class Due:
    """Says when to save: after a number of rounds, a number of minutes, or both.

    With several processes, the clock of the first one counts. Asking it delays a round,
    so it is asked when the minutes should have passed, and before that after 1, 2, 4
    and so on rounds.

    Args:
      every: rounds between checkpoints; None: only minutes count.
      minutes: minutes between checkpoints; None: only rounds count.

    >>> from olsgd_jax.training import Due
    >>> due = Due(every=10)
    >>> due(20), due(21)
    (True, False)
    """

    def __init__(self, every: int | None = None, minutes: float | None = None) -> None:
        """Starts the clock."""
        if every is not None:
            check_count("every", every)
        if minutes is not None:
            check_number("minutes", minutes, 0, math.inf, "()")
        self._every, self._minutes = every, minutes
        self.restart(0)

    def __call__(self, number: int) -> bool:
        """Says whether to save after so many rounds; call it once after each."""
        if self._every is not None and number % self._every == 0:
            return True
        if self._minutes is None or number < self._asked_at:
            return False
        left = 60 * self._minutes - (time.monotonic() - self._began)
        if jax.process_count() > 1:
            left = float(multihost_utils.broadcast_one_to_all(np.float32(left)))
            self._asked_at = self._next(number, left)
        return left <= 0

    def restart(self, number: int) -> None:
        """Starts counting again, minutes from now and rounds from `number`."""
        self._first, self._began = number, time.monotonic()
        self._asked_at = number + 1

    def _next(self, number: int, left: float) -> int:
        """Gives the round after which to ask again, the same in all processes."""
        passed = max(1, number - self._first)
        taken = 60 * (self._minutes or 0) - left
        until_due = left * passed / taken if taken > 0 else math.inf
        return number + max(1, math.ceil(min(passed, until_due)))
