"""RoundTime: how long rounds take, and what of it is spent waiting."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float


class RoundTime(NamedTuple):
    """Modelled seconds, per round.

    >>> import numpy as np
    >>> from olsgd_jax.timing import RoundTime
    >>> time = RoundTime(seconds=4.0, compute=np.array([1.0, 3.0]))
    >>> time.exposed, time.utilisation
    (2.0, 0.5)
    >>> time.idle
    array([3., 1.])
    """

    seconds: float  # until the last worker is done, over the number of rounds
    compute: Float[np.ndarray, " workers"]  # of each worker's local steps

    @property
    def exposed(self) -> float:
        """Seconds beyond the local steps, mean over workers."""
        return float(self.idle.mean())

    @property
    def utilisation(self) -> float:
        """The share of the time in which workers compute."""
        return float(self.compute.mean() / self.seconds)

    @property
    def idle(self) -> Float[np.ndarray, " workers"]:
        """Seconds that each worker waits, for the network or for other workers."""
        return self.seconds - self.compute
