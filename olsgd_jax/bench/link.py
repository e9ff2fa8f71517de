"""A network as the model of time knows it, from two measured means."""

import math

from olsgd_jax.timing import RingOrTree

_LEAST = 0.01  # of a mean's time is put down to its bytes, or B could be infinite


def link_of(
    one_seconds: float, model_seconds: float, num_bytes: int, num_workers: int
) -> RingOrTree:
    """Derives the bandwidth and the latency that explain two measured means.

    Args:
      one_seconds: mean of one number; a tree has fewest messages, 2 ⌈log₂ m⌉ in a row.
      model_seconds: mean of a model.
      num_bytes: size of that model.
      num_workers: m, at least 2.

    Returns:
      A network on which the mean of the model takes exactly as long as measured.

    >>> from olsgd_jax.timing import RingOrTree
    >>> network = RingOrTree(bandwidth=1e9, latency=0.001)
    >>> found = link_of(0.004, network.seconds(4e7, 4), num_bytes=40_000_000,
    ...                 num_workers=4)
    >>> round(found.bandwidth), found.latency
    (1000000000, 0.001)
    """
    levels = math.ceil(math.log2(num_workers))
    latency = min(one_seconds, (1 - _LEAST) * model_seconds) / (2 * levels)
    # For each of the two, the time that its messages leave to the bytes.
    ring = model_seconds / (2 * (num_workers - 1)) - latency
    tree = model_seconds / (2 * levels) - latency
    bandwidth = num_bytes / tree
    if ring > 0:
        bandwidth = min(bandwidth, num_bytes / num_workers / ring)
    return RingOrTree(bandwidth, latency)
