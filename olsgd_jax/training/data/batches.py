"""Every worker's batches, as a function of the round's number alone.

Local step k of a worker takes examples k b … (k + 1) b − 1 of its stream, for batches
of b. No example is left out: a batch may hold the last examples of one pass over the
shard and the first of the next. Nothing has to be remembered between rounds, and the
sync period has no say in who sees what when. A worker with a smaller shard goes through
it more often.

A process holds the examples of its own workers, and reads no others.
"""

from collections.abc import Callable

import jax
import numpy as np
from jax.sharding import Mesh

from olsgd_jax._checks import check_count, check_seed
from olsgd_jax.training.data.streams import make_stream
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
        {"inputs": ..., "labels": ...}. Those of this process' workers are copied.
      shards: indices of every worker's examples, as `make_partition` gives them.
      sync_period: τ, local steps in a round.
      batch_size: examples of one worker at one local step; at most the size of any
        shard.
      seed: seed of the order of every pass.
      mesh: where the workers are; None for lanes of one device. Every process puts
        together the batches of its own workers only.
      reshuffle: whether every pass has another order; False repeats that of the first.
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
    held = jax.tree.map(lambda x: x[all_own], examples)
    # Where the examples of each worker begin among those that are held.
    begins = np.cumsum([0] + [len(shards[i]) for i in workers[:-1]])

    def indices(round: int) -> dict[int, np.ndarray]:
        first = round * sync_period + (long_first_round if round else 0)
        num_steps = sync_period + (0 if round else long_first_round)
        place = first * batch_size, num_steps * batch_size
        return {
            i: (begin + stream(*place)).reshape(num_steps, batch_size)
            for i, stream, begin in zip(workers, streams, begins, strict=True)
        }

    def batches(round: int) -> Batch:
        places = indices(round)
        num_steps = len(places[workers[0]])

        def take(x: np.ndarray) -> jax.Array:
            def part(place: tuple[slice, ...] | None) -> np.ndarray:
                chosen, *steps_and_batch = (place or (slice(None),))[:3]
                taken = np.stack([places[i] for i in range(len(shards))[chosen]])
                return x[taken[:, *steps_and_batch]]

            if mesh is None:
                return jax.device_put(part(None))
            shape = (len(shards), num_steps, batch_size, *x.shape[1:])
            sharding = batch_shardings(jax.ShapeDtypeStruct(shape, x.dtype), mesh)
            return jax.make_array_from_callback(shape, sharding, part)

        return jax.tree.map(take, held)

    return batches


def _local_workers(num_workers: int, mesh: Mesh | None) -> list[int]:
    """Lists the workers with a device of this process."""
    if mesh is None:
        return list(range(num_workers))
    shape = (num_workers,)
    sharding = batch_shardings(jax.ShapeDtypeStruct(shape, np.int32), mesh)
    places = sharding.addressable_devices_indices_map(shape).values()
    return sorted({i for (place,) in places for i in range(num_workers)[place]})


def _check(
    examples: Batch,
    shards: Shards,
    sync_period: int,
    batch_size: int,
    mesh: Mesh | None,
) -> None:
    check_count("sync_period", sync_period)
    check_count("batch_size", batch_size)
    num_workers, places = len(shards), 1 if mesh is None else mesh.shape[WORKERS]
    if not num_workers or num_workers % places:
        raise ValueError(
            "shards must be one for each worker, and as many for each place of the "
            f"mesh, got {num_workers} shards and {places} places"
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
