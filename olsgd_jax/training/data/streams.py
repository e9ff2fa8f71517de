"""The order in which a worker goes through its shard, again and again.

Each pass over the shard (epoch) has another order. Laid end to end, the passes are one
endless stream:

    stream of worker i = order(i, 0), order(i, 1), order(i, 2) ...

The order of a pass depends on (seed, worker, epoch) only, so any part of the stream can
be had without the parts before it.
"""

import functools
from collections.abc import Callable

import numpy as np
from jaxtyping import Int


def make_stream(
    shard_size: int, seed: int, worker: int, reshuffle: bool = True
) -> Callable[[int, int], Int[np.ndarray, " length"]]:
    """Builds the stream of one worker.

    Args:
      shard_size: how many examples it has.
      seed: seed of the order of every pass.
      worker: i.
      reshuffle: whether every pass has another order; False repeats that of the first.

    Returns:
      stream(first, length) -> which of the shard's examples are at `first` …
      `first + length − 1` of the stream.

    >>> stream = make_stream(shard_size=3, seed=0, worker=0)
    >>> sorted(stream(0, 3).tolist()), sorted(stream(3, 3).tolist())
    ([0, 1, 2], [0, 1, 2])
    """

    # Two passes are kept: a round may hold the end of one and the start of the next.
    @functools.lru_cache(maxsize=2)
    def order(epoch: int) -> Int[np.ndarray, " shard"]:
        # A spawn key sets these generators apart from every other use of the seed.
        sequence = np.random.SeedSequence(seed, spawn_key=(worker, epoch))
        return np.random.default_rng(sequence).permutation(shard_size)

    def stream(first: int, length: int) -> Int[np.ndarray, " length"]:
        epochs = range(first // shard_size, (first + length - 1) // shard_size + 1)
        orders = [order(epoch if reshuffle else 0) for epoch in epochs]
        skipped = first % shard_size
        return np.concatenate(orders)[skipped : skipped + length]

    return stream
