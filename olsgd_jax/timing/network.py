"""Networks: how long one mean over all workers takes.

Every worker has a link of `bandwidth` B to the others, and each message takes `latency`
l in addition to the time of its bytes. A mean of n bytes over m workers takes

    ring        2 (m − 1) (n / (m B) + l)
    tree        2 ⌈log₂ m⌉ (n / B + l)
    exchanges   2 ((m − 1) n / (m B) + l)

A ring passes an m-th of the bytes around twice (Patarasuk and Yuan, 2009): few bytes,
many messages. A tree sends all bytes up to one worker and down again, one level at a
time, not pipelined (Thakur, Rabenseifner and Gropp, 2005): many bytes, few messages.

A compressed mean of n bytes takes two exchanges, one after the other. In each of them
every worker sends an m-th of the bytes to every other: as much as in a ring, but no
message waits for another, so that the latency counts once.
"""

import dataclasses
import math
from typing import Protocol, runtime_checkable

from olsgd_jax._checks import check_count, check_number


@runtime_checkable
class Network(Protocol):
    """What connects the workers; pass a class of your own for a measured time.

    >>> from olsgd_jax.timing import Network
    >>> class Measured:
    ...     def seconds(self, num_bytes: float, num_workers: int) -> float:
    ...         return 0.42
    >>> isinstance(Measured(), Network)
    True
    """

    def seconds(self, num_bytes: float, num_workers: int) -> float:
        """Gives the time of one mean; it must not fall as `num_bytes` grows."""
        ...


@dataclasses.dataclass(frozen=True)
class Link:
    """A worker's link to the others, in one direction."""

    bandwidth: float  # B, in bytes per second
    latency: float = 0.0  # l, seconds per message

    def __post_init__(self) -> None:
        """Checks the numbers."""
        check_number("bandwidth", self.bandwidth, 0, math.inf, "()")
        check_number("latency", self.latency, 0, math.inf, "[)")


@dataclasses.dataclass(frozen=True)
class Ring(Link):
    """A ring of workers, each of which sends to the next.

    >>> from olsgd_jax.timing import Ring
    >>> Ring(bandwidth=1e9, latency=0.001).seconds(num_bytes=1e9, num_workers=4)
    1.506
    """

    def seconds(self, num_bytes: float, num_workers: int) -> float:
        """Gives the time of one mean."""
        _check_mean(num_bytes, num_workers)
        messages = 2 * (num_workers - 1)
        return messages * (num_bytes / num_workers / self.bandwidth + self.latency)


@dataclasses.dataclass(frozen=True)
class Tree(Link):
    """A binary tree of workers: sums travel up, the mean travels down.

    >>> from olsgd_jax.timing import Tree
    >>> Tree(bandwidth=1e9, latency=0.001).seconds(num_bytes=1e9, num_workers=4)
    4.004
    """

    def seconds(self, num_bytes: float, num_workers: int) -> float:
        """Gives the time of one mean."""
        _check_mean(num_bytes, num_workers)
        levels = (num_workers - 1).bit_length()  # ⌈log₂ m⌉, without rounding
        return 2 * levels * (num_bytes / self.bandwidth + self.latency)


@dataclasses.dataclass(frozen=True)
class RingOrTree(Link):
    """A ring or a tree, whichever is faster for the mean at hand.

    >>> from olsgd_jax.timing import RingOrTree
    >>> network = RingOrTree(bandwidth=1e9, latency=0.001)
    >>> network.seconds(num_bytes=1e9, num_workers=4)
    1.506
    >>> network.faster(num_bytes=1e3, num_workers=4)
    Tree(bandwidth=1000000000.0, latency=0.001)
    """

    def seconds(self, num_bytes: float, num_workers: int) -> float:
        """Gives the time of one mean."""
        faster = self.faster(num_bytes, num_workers)
        return faster.seconds(num_bytes, num_workers)

    def faster(self, num_bytes: float, num_workers: int) -> Ring | Tree:
        """Gives the faster of the two networks."""
        return min(
            (Ring(self.bandwidth, self.latency), Tree(self.bandwidth, self.latency)),
            key=lambda network: network.seconds(num_bytes, num_workers),
        )


@dataclasses.dataclass(frozen=True)
class Exchanges(Link):
    """Two exchanges, one after the other, as compressed means take.

    >>> from olsgd_jax.timing import Exchanges
    >>> Exchanges(bandwidth=1e9, latency=0.001).seconds(num_bytes=1e9, num_workers=4)
    1.502
    """

    def seconds(self, num_bytes: float, num_workers: int) -> float:
        """Gives the time of one mean."""
        _check_mean(num_bytes, num_workers)
        if num_workers == 1:
            return 0.0
        to_others = (num_workers - 1) * num_bytes / num_workers
        return 2 * (to_others / self.bandwidth + self.latency)


def _check_mean(num_bytes: float, num_workers: int) -> None:
    check_number("num_bytes", num_bytes, 0, math.inf, "[)")
    check_count("num_workers", num_workers)
