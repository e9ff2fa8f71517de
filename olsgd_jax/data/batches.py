"""Every worker's batches, as a function of the round's number alone.

Worker i goes through its shard again and again, each pass (epoch) in another order.
Laid end to end, these passes are one endless stream of examples:

    stream of worker i = order(i, 0), order(i, 1), order(i, 2) ...

Local step k takes examples k b … (k + 1) b − 1 of it, for batches of b. No example is
left out: a batch may hold the last examples of one pass and the first of the next.
The order of a pass depends on (seed, worker, epoch) only, so nothing has to be
remembered between rounds, and the sync period has no say in who sees what when.
"""

from collections.abc import Callable

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Int

from olsgd_jax.checks import check_count
from olsgd_jax.placement import batch_shardings
from olsgd_jax.types import Batch


def make_batches(
    examples: Batch,
    shards: Int[np.ndarray, "workers shard"],
    *,
    sync_period: int,
    batch_size: int,
    seed: int,
    mesh: Mesh | None = None,
) -> Callable[[int], Batch]:
    """Builds the function that gives the batches of any round.

    Args:
      examples: a tree of NumPy arrays whose leading axis is the example, such as
        {"inputs": ..., "labels": ...}.
      shards: indices of every worker's examples, as `partition_iid` makes them.
      sync_period: τ, local steps in a round.
      batch_size: of one worker at one local step; at most the size of a shard.
      seed: of the order of every pass.
      mesh: where the workers are; None for lanes of one device. Every process puts
        together the batches of its own workers only.

    Returns:
      batches(round) -> the tree with leading axes (worker, local step, batch). Rounds
      count from 0.

    >>> import numpy as np
    >>> from olsgd_jax import make_batches, partition_iid
    >>> examples = {"inputs": np.zeros((12, 5), np.float32), "labels": np.arange(12)}
    >>> shards = partition_iid(12, num_workers=2, seed=0)
    >>> batches = make_batches(examples, shards, sync_period=4, batch_size=3, seed=0)
    >>> batches(0)["inputs"].shape, batches(0)["labels"].shape
    ((2, 4, 3, 5), (2, 4, 3))
    """
    _check(examples, shards, sync_period, batch_size)
    num_workers, shard_size = shards.shape

    def indices(workers: range, round: int) -> np.ndarray:
        length = sync_period * batch_size
        streams = [
            shards[i][_stream(round * length, length, shard_size, seed, i)]
            for i in workers
        ]
        return np.stack(streams).reshape(-1, sync_period, batch_size)

    def batches(round: int) -> Batch:
        def take(x: np.ndarray) -> jax.Array:
            def part(place: tuple[slice, ...] | None) -> np.ndarray:
                workers, *steps_and_batch = (place or (slice(None),))[:3]
                taken = indices(range(num_workers)[workers], round)
                return x[taken[:, *steps_and_batch]]

            if mesh is None:
                return jax.device_put(part(None))
            shape = (num_workers, sync_period, batch_size, *x.shape[1:])
            sharding = batch_shardings(jax.ShapeDtypeStruct(shape, x.dtype), mesh)
            return jax.make_array_from_callback(shape, sharding, part)

        return jax.tree.map(take, examples)

    return batches


def _stream(
    first: int, length: int, shard_size: int, seed: int, worker: int
) -> np.ndarray:
    """Gives positions `first` … `first + length − 1` of a worker's stream."""
    epochs = range(first // shard_size, (first + length - 1) // shard_size + 1)
    # A spawn key sets these generators apart from every other use of the seed.
    orders = [
        np.random.default_rng(
            np.random.SeedSequence(seed, spawn_key=(worker, epoch))
        ).permutation(shard_size)
        for epoch in epochs
    ]
    begin = first % shard_size
    return np.concatenate(orders)[begin : begin + length]


def _check(
    examples: Batch, shards: np.ndarray, sync_period: int, batch_size: int
) -> None:
    check_count("sync_period", sync_period)
    check_count("batch_size", batch_size)
    num_workers, shard_size = shards.shape
    if batch_size > shard_size:
        raise ValueError(
            f"batch_size must be at most the size of a shard, got {batch_size} and "
            f"shards of {shard_size} examples for {num_workers} workers; use smaller "
            "batches or fewer workers"
        )
    for x in jax.tree.leaves(examples):
        if len(x) <= shards.max():
            raise ValueError(
                f"shards must hold indices of the {len(x)} examples, got {shards.max()}"
            )
