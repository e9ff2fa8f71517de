"""The partition: which examples are whose, fixed for a whole training run."""

import numpy as np
from jaxtyping import Int

from olsgd_jax.checks import check_count


def partition_iid(
    num_examples: int, num_workers: int, seed: int
) -> Int[np.ndarray, "workers shard"]:
    """Deals examples to workers at random.

    Shards are disjoint and of equal size. Where num_workers does not divide
    num_examples, the remainder, fewer than num_workers examples, is in no shard.

    Args:
      num_examples: how many there are.
      num_workers: m, at most num_examples.
      seed: of the deal.

    Returns:
      The indices of every worker's examples.

    >>> from olsgd_jax import partition_iid
    >>> partition_iid(num_examples=10, num_workers=3, seed=0).shape
    (3, 3)
    """
    check_count("num_workers", num_workers)
    if num_examples < num_workers:
        raise ValueError(
            f"num_workers must be at most the number of examples, got {num_workers} "
            f"workers and {num_examples} examples"
        )
    order = np.random.default_rng(seed).permutation(num_examples)
    shard_size = num_examples // num_workers
    return order[: num_workers * shard_size].reshape(num_workers, shard_size)
