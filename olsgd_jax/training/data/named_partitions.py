"""Partitions by name, and what is in their shards."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Int

from olsgd_jax._checks import check_choice
from olsgd_jax.training.data.partition import (
    partition_dirichlet,
    partition_iid,
    partition_paper_non_iid,
)
from olsgd_jax.types import Shards

PARTITIONS: dict[str, Callable[[np.ndarray, int, int, float], Shards]] = {
    "iid": lambda labels, num_workers, seed, concentration: partition_iid(
        len(labels), num_workers, seed
    ),
    "paper_non_iid": lambda labels, num_workers, seed, concentration: (
        partition_paper_non_iid(labels, num_workers, seed)
    ),
    "dirichlet": lambda labels, num_workers, seed, concentration: partition_dirichlet(
        labels, num_workers, concentration, seed
    ),
}
"""Every partition by its name: labels, num_workers, seed, concentration -> shards."""


def make_partition(
    name: str,
    labels: Int[np.ndarray, " examples"],
    num_workers: int,
    seed: int,
    concentration: float = 0.5,
) -> Shards:
    """Draws a partition by its name in `PARTITIONS`.

    Args:
      name: "iid", "paper_non_iid" or "dirichlet".
      labels: labels of all examples.
      num_workers: m.
      seed: seed of the draw.
      concentration: parameter of "dirichlet"; the others ignore it.

    >>> import numpy as np
    >>> from olsgd_jax.training import make_partition
    >>> labels = np.arange(1000) % 10
    >>> len(make_partition("paper_non_iid", labels, num_workers=16, seed=0))
    16
    """
    check_choice("partition", name, tuple(PARTITIONS))
    return PARTITIONS[name](labels, num_workers, seed, concentration)


def label_histogram(
    labels: Int[np.ndarray, " examples"], shards: Shards, num_classes: int
) -> Int[np.ndarray, "workers classes"]:
    """Counts how many examples of every class every worker has.

    >>> import numpy as np
    >>> from olsgd_jax.training import label_histogram
    >>> labels, shards = np.array([0, 0, 2, 1, 2]), [np.array([0, 1]), np.array([2, 4])]
    >>> label_histogram(labels, shards, num_classes=3)
    array([[2, 0, 0],
           [0, 0, 2]])
    """
    counts = [np.bincount(labels[shard], minlength=num_classes) for shard in shards]
    return np.stack(counts)
