"""When a checkpoint is due."""

import math
import time

import jax
import numpy as np
from jax.experimental import multihost_utils

from olsgd_jax.checks import check_count, check_number


class Due:
    """Says when to save: every so many rounds, and when so many minutes have passed.

    Args:
      every: rounds; None: only by minutes.
      minutes: None: only by rounds.

    >>> from olsgd_jax.checkpoints.due import Due
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
        self._every, self._minutes, self._last = every, minutes, time.monotonic()

    def __call__(self, number: int) -> bool:
        """Says whether it is time; the first process' clock counts for all."""
        is_late = False
        if self._minutes is not None:
            is_late = time.monotonic() - self._last >= 60 * self._minutes
            if jax.process_count() > 1:
                is_late = bool(multihost_utils.broadcast_one_to_all(np.array(is_late)))
        return is_late or (self._every is not None and number % self._every == 0)

    def restart(self) -> None:
        """Counts minutes from now on."""
        self._last = time.monotonic()
