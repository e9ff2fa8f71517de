"""Derives the model's network from two measured means."""

import math

from olsgd_jax.timing import RingOrTree

_LEAST = 0.01  # at least this part of a mean's time is due to bytes, so B is finite


def link_of(
    one_seconds: float, model_seconds: float, num_bytes: int, num_workers: int
) -> RingOrTree:
    """Derives the bandwidth and the latency that explain two measured means.

    Args:
      one_seconds: time of the mean of one number. It is attributed to the latency of
        the 2 ⌈log₂ m⌉ consecutive messages of a tree, which has the fewest.
      model_seconds: time of the mean of a model.
      num_bytes: size of the model.
      num_workers: m, at least 2.

    Returns:
      A network on which the mean of the model takes exactly the measured time.

    >>> from olsgd_jax.timing import RingOrTree
    >>> network = RingOrTree(bandwidth=1e9, latency=0.001)
    >>> found = link_of(0.004, network.seconds(4e7, 4), num_bytes=40_000_000,
    ...                 num_workers=4)
    >>> round(found.bandwidth), found.latency
    (1000000000, 0.001)
    """
    levels = math.ceil(math.log2(num_workers))
    latency = min(one_seconds, (1 - _LEAST) * model_seconds) / (2 * levels)
    # For ring and tree: the time per message, less latency, that the bytes take.
    ring = model_seconds / (2 * (num_workers - 1)) - latency
    tree = model_seconds / (2 * levels) - latency
    bandwidth = num_bytes / tree
    if ring > 0:
        bandwidth = min(bandwidth, num_bytes / num_workers / ring)
    return RingOrTree(bandwidth, latency)
