"""Every worker's batches, as a function of the round number alone.

A worker goes through its shard again and again, each pass (epoch) in another order.
Laid end to end, the passes are one endless stream:

    stream of worker i = order(i, 0), order(i, 1), order(i, 2) ...

The order of a pass depends only on (seed, worker, epoch), so any part of the stream can
be computed without the parts before it. Local step k takes examples k b … (k + 1) b − 1
of the stream, for batches of b. No example is left out: a batch may contain the last
examples of one pass and the first of the next. Nothing has to be remembered between
rounds, and the sync period does not change the order of the examples. A worker with a
smaller shard goes through it more often.

A process reads and holds only the examples of its own workers. Windows of a text share
their characters, so a process holds the whole text instead, once.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Int
from numpy.lib.array_utils import byte_bounds

from olsgd_jax._checks import check_count, check_seed
from olsgd_jax.types import Batch, Shards
from olsgd_jax.workers.axis import WORKERS
from olsgd_jax.workers.sharding import batch_shardings


def make_batches(
    examples: Batch,
    shards: Shards,
    *,
    sync_period: int,
    batch_size: int,
    seed: int,
    mesh: Mesh | None = None,
    reshuffle: bool = True,
    long_first_round: bool = False,
) -> Callable[[int], Batch]:
    """Builds the function that gives the batches of any round.

    Args:
      examples: a tree of NumPy arrays whose leading axis is the example, such as
        {"inputs": ..., "labels": ...}. Those of this process's workers are copied,
        unless examples overlap in memory.
      shards: indices of every worker's examples, as `make_partition` gives them.
      sync_period: τ, local steps in a round.
      batch_size: examples per worker and local step; at most the size of the
        smallest shard.
      seed: seed of the order of every pass.
      mesh: where the workers are; None for lanes of one device. A process makes the
        batches of its own workers only.
      reshuffle: whether every pass has another order; False repeats the first one.
      long_first_round: give round 0 one step more than τ.

    Returns:
      batches(round) -> the tree with leading axes (worker, local step, batch). Rounds
      count from 0.

    >>> import numpy as np
    >>> from olsgd_jax.training import make_batches, partition_iid
    >>> examples = {"inputs": np.zeros((12, 5), np.float32), "labels": np.arange(12)}
    >>> shards = partition_iid(12, num_workers=2, seed=0)
    >>> batches = make_batches(examples, shards, sync_period=4, batch_size=3, seed=0)
    >>> batches(0)["inputs"].shape, batches(0)["labels"].shape
    ((2, 4, 3, 5), (2, 4, 3))
    """
    _check(examples, shards, sync_period, batch_size, mesh)
    check_seed("seed", seed)
    workers = _local_workers(len(shards), mesh)
    streams = [make_stream(len(shards[i]), seed, i, reshuffle) for i in workers]
    all_own = np.concatenate([shards[i] for i in workers])
    held = jax.tree.map(lambda x: _held(x, all_own), examples)
    # Where the examples of each worker begin among those of all own workers.
    begins = np.cumsum([0] + [len(shards[i]) for i in workers[:-1]])

    def batches(round: int) -> Batch:
        first = round * sync_period + (long_first_round if round else 0)
        num_steps = sync_period + (0 if round else long_first_round)
        span = first * batch_size, num_steps * batch_size
        indices = {
            i: (begin + stream(*span)).reshape(num_steps, batch_size)
            for i, stream, begin in zip(workers, streams, begins, strict=True)
        }

        def take(x: Held) -> jax.Array:
            def part(index: tuple[slice, ...] | None) -> np.ndarray:
                chosen, *steps_and_batch = (index or (slice(None),))[:3]
                taken = np.stack([indices[i] for i in range(len(shards))[chosen]])
                return x.take(taken[:, *steps_and_batch])

            if mesh is None:
                return jax.device_put(part(None))
            shape = (len(shards), num_steps, batch_size, *x.array.shape[1:])
            whole = jax.ShapeDtypeStruct(shape, x.array.dtype)
            sharding = batch_shardings(whole, mesh)
            return jax.make_array_from_callback(shape, sharding, part)

        return jax.tree.map(take, held, is_leaf=lambda x: isinstance(x, Held))

    return batches


class Held(NamedTuple):
    """Examples of this process's workers, one worker after the other."""

    array: np.ndarray
    rows: Int[np.ndarray, " own"] | None  # where they are in it; None: it has no others

    def take(self, numbers: Int[np.ndarray, "*numbers"]) -> np.ndarray:
        """Copies some of the examples."""
        return self.array[numbers if self.rows is None else self.rows[numbers]]


def _held(x: np.ndarray, all_own: Int[np.ndarray, " own"]) -> Held:
    if isinstance(x, np.ndarray):  # not a reader that only looks like one
        low, high = byte_bounds(x)
        if high - low < x.nbytes:  # a copy would repeat what examples have in common
            return Held(x, all_own)
    return Held(x[all_own], None)


def make_stream(
    shard_size: int, seed: int, worker: int, reshuffle: bool = True
) -> Callable[[int, int], Int[np.ndarray, " length"]]:
    """Builds the stream of one worker.

    Args:
      shard_size: number of examples of the worker.
      seed: seed of the order of every pass.
      worker: number of the worker, i.
      reshuffle: whether every pass has another order; False repeats the first one.

    Returns:
      stream(first, length) -> indices into the shard, for examples `first` …
      `first + length − 1` of the stream.

    >>> stream = make_stream(shard_size=3, seed=0, worker=0)
    >>> sorted(stream(0, 3).tolist()), sorted(stream(3, 3).tolist())
    ([0, 1, 2], [0, 1, 2])
    """

    # Two passes are kept: a round may span the end of one and the start of the next.
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


def _local_workers(num_workers: int, mesh: Mesh | None) -> list[int]:
    """Lists the workers that have a device of this process."""
    if mesh is None:
        return list(range(num_workers))
    shape = (num_workers,)
    sharding = batch_shardings(jax.ShapeDtypeStruct(shape, np.int32), mesh)
    slices = sharding.addressable_devices_indices_map(shape).values()
    return sorted({i for (chosen,) in slices for i in range(num_workers)[chosen]})


def _check(
    examples: Batch,
    shards: Shards,
    sync_period: int,
    batch_size: int,
    mesh: Mesh | None,
) -> None:
    check_count("sync_period", sync_period)
    check_count("batch_size", batch_size)
    num_workers, slots = len(shards), 1 if mesh is None else mesh.shape[WORKERS]
    if not num_workers or num_workers % slots:
        raise ValueError(
            "shards must be one per worker, with as many workers in each slot of the "
            f"mesh, got {num_workers} shards and {slots} slots"
        )
    smallest = min(len(shard) for shard in shards)
    if batch_size > smallest:
        raise ValueError(
            f"batch_size must be at most the size of the smallest shard, got "
            f"{batch_size} and {smallest} examples with {num_workers} workers; use "
            "smaller batches, fewer workers or another partition"
        )
    largest = max(shard.max() for shard in shards)
    for x in jax.tree.leaves(examples):
        if len(x) <= largest:
            raise ValueError(
                f"shards must hold indices of the {len(x)} examples, got {largest}"
            )
