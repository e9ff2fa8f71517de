"""RoundTime: how long a round takes, and how much of it is spent waiting."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float


class RoundTime(NamedTuple):
    """Modelled seconds per round.

    >>> import numpy as np
    >>> from olsgd_jax.timing import RoundTime
    >>> time = RoundTime(seconds=4.0, compute=np.array([1.0, 3.0]))
    >>> time.exposed, time.utilisation
    (2.0, 0.5)
    >>> time.idle
    array([3., 1.])
    """

    seconds: float  # total time until the last worker is done / number of rounds
    compute: Float[np.ndarray, " workers"]  # seconds of each worker's local steps

    @property
    def exposed(self) -> float:
        """Seconds in which a worker does not compute, averaged over the workers."""
        return float(self.idle.mean())

    @property
    def utilisation(self) -> float:
        """The fraction of the time in which workers compute."""
        return float(self.compute.mean() / self.seconds)

    @property
    def idle(self) -> Float[np.ndarray, " workers"]:
        """Seconds that each worker waits, for the network or for other workers."""
        return self.seconds - self.compute
