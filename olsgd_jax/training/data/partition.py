"""Partitions: which worker has which examples, fixed for a whole training run.

A partition is drawn from a seed and gives every worker its shard, the indices of its
examples. Shards are disjoint.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Int

from olsgd_jax._checks import check_choice, check_count, check_number, check_seed
from olsgd_jax.types import Shards

MAJOR_CLASSES = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 3, 5, 7, 9, 2)
"""Major classes of the paper's 16 workers, numbered as they first occur in the data."""

MAJOR_FRACTION = 0.64
"""Fraction of a worker's examples that are of its major class: 2,000 of 3,125."""

MOST_EQUAL = 1e12
"""The largest concentration; far below it, parts are equal already."""


def partition_iid(num_examples: int, num_workers: int, seed: int) -> Shards:
    """Deals examples to workers at random.

    Shards have equal sizes. If num_workers does not divide num_examples, the remainder
    of fewer than num_workers examples is in no shard.

    Args:
      num_examples: number of examples.
      num_workers: m, at most num_examples.
      seed: seed of the deal.

    >>> from olsgd_jax.training import partition_iid
    >>> [len(shard) for shard in partition_iid(num_examples=10, num_workers=3, seed=0)]
    [3, 3, 3]
    """
    _check(num_examples, num_workers, seed)
    order = np.random.default_rng(seed).permutation(num_examples)
    return _equal_parts(order, num_workers, num_examples // num_workers)


def partition_contiguous(
    num_examples: int, num_workers: int, overlap: int = 0
) -> Shards:
    """Cuts the examples into consecutive parts of equal sizes, one for each worker.

    Args:
      num_examples: number of examples.
      num_workers: m.
      overlap: number of examples after each one that share something with it, as
        windows of a text share characters. So many examples between two parts are in no
        shard, so that workers have nothing in common.

    >>> from olsgd_jax.training import partition_contiguous
    >>> [shard.tolist() for shard in partition_contiguous(10, 2, overlap=2)]
    [[0, 1, 2, 3], [6, 7, 8, 9]]
    """
    _check(num_examples, num_workers, seed=0)
    size = (num_examples + overlap) // num_workers
    if size <= overlap:
        raise ValueError(
            f"num_workers must leave every worker more than {overlap} examples in a "
            f"row, as each of them overlaps with the next {overlap}, got {num_workers} "
            f"workers and {num_examples} examples; use fewer workers"
        )
    return [np.arange(i * size, (i + 1) * size - overlap) for i in range(num_workers)]


def partition_paper_non_iid(
    labels: Int[np.ndarray, " examples"], num_workers: int, seed: int
) -> Shards:
    """Deals every worker mostly one class, as in the paper.

    Shards have equal sizes, as in `partition_iid`. A fraction of `MAJOR_FRACTION` of
    each is of the worker's class in `MAJOR_CLASSES`, which repeats for more than 16
    workers. The rest is dealt at random from what is left. With 16 workers some classes
    are major twice, so what is left is skewed too.

    Args:
      labels: labels of all examples.
      num_workers: m. Every class must have enough examples: ten equal classes suffice
        for 7 to 10, 13 to 17, and 20 or more workers.
      seed: seed of the deal.

    >>> import numpy as np
    >>> from olsgd_jax.training import label_histogram, partition_paper_non_iid
    >>> labels = np.arange(1600) % 10
    >>> shards = partition_paper_non_iid(labels, num_workers=16, seed=0)
    >>> label_histogram(labels, shards, num_classes=10).argmax(axis=1).tolist()
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 3, 5, 7, 9, 2]
    """
    _check(len(labels), num_workers, seed)
    _check_labels(labels)
    random = np.random.default_rng(seed)
    left = random.permutation(len(labels))
    classes, firsts = np.unique(labels, return_index=True)
    classes = classes[np.argsort(firsts)]
    shard_size = len(labels) // num_workers
    num_major = round(MAJOR_FRACTION * shard_size)
    majors = []
    for i in range(num_workers):
        major = classes[MAJOR_CLASSES[i % len(MAJOR_CLASSES)] % len(classes)]
        found = left[labels[left] == major][:num_major]
        if len(found) < num_major:
            raise ValueError(
                f"num_workers must leave {num_major} examples of class {major} to "
                f"worker {i}, got {num_workers} workers and {len(found)} examples; use "
                "another number of workers"
            )
        majors.append(found)
        left = left[~np.isin(left, found)]
    # Shuffled again: the examples of major classes were taken from the front.
    left = random.permutation(left)
    others = _equal_parts(left, num_workers, shard_size - num_major)
    return [np.concatenate(parts) for parts in zip(majors, others, strict=True)]


def partition_dirichlet(
    labels: Int[np.ndarray, " examples"],
    num_workers: int,
    concentration: float,
    seed: int,
) -> Shards:
    """Deals the examples of each class in proportions drawn from a Dirichlet.

    Every example is in a shard, and shards differ in size. A worker without examples
    gets one from the largest shard.

    Args:
      labels: labels of all examples.
      num_workers: number of workers, m.
      concentration: above 0, up to `MOST_EQUAL`. The smaller, the fewer workers share
        a class; large values give nearly equal parts.
      seed: seed of proportions and deal.

    >>> import numpy as np
    >>> from olsgd_jax.training import partition_dirichlet
    >>> labels = np.arange(1000) % 10
    >>> shards = partition_dirichlet(labels, num_workers=4, concentration=0.5, seed=0)
    >>> sum(len(shard) for shard in shards)
    1000
    """
    _check(len(labels), num_workers, seed)
    _check_labels(labels)
    check_number("concentration", concentration, 0, MOST_EQUAL, "(]")
    random = np.random.default_rng(seed)
    parts = []
    for label in np.unique(labels):
        examples = random.permutation(np.flatnonzero(labels == label))
        proportions = random.dirichlet(np.full(num_workers, concentration))
        cuts = np.round(np.cumsum(proportions)[:-1] * len(examples)).astype(int)
        parts.append(np.split(examples, cuts))
    shards = [np.concatenate(own) for own in zip(*parts, strict=True)]
    while min(sizes := [len(shard) for shard in shards]) == 0:
        poor, rich = np.argmin(sizes), np.argmax(sizes)
        shards[poor], shards[rich] = shards[rich][:1], shards[rich][1:]
    return shards


PARTITIONS: dict[str, Callable[[np.ndarray, int, int, float], Shards]] = {
    "iid": lambda labels, num_workers, seed, concentration: partition_iid(
        len(labels), num_workers, seed
    ),
    "contiguous": lambda labels, num_workers, seed, concentration: partition_contiguous(
        len(labels), num_workers, overlap=labels.shape[1] if labels.ndim > 1 else 0
    ),
    "paper_non_iid": lambda labels, num_workers, seed, concentration: (
        partition_paper_non_iid(labels, num_workers, seed)
    ),
    "dirichlet": lambda labels, num_workers, seed, concentration: partition_dirichlet(
        labels, num_workers, concentration, seed
    ),
}
"""Every partition by its name: labels, num_workers, seed, concentration -> shards."""

OF_TEXTS = ("iid", "contiguous")
"""Partitions that need no classes."""


def make_partition(
    name: str,
    labels: Int[np.ndarray, "examples ..."],
    num_workers: int,
    seed: int,
    concentration: float = 0.5,
) -> Shards:
    """Draws a partition by its name in `PARTITIONS`.

    Windows of a text are dealt like other examples: "iid" gives every worker random
    windows of the whole text, "contiguous" those of its own part. The other partitions
    need one class for each example.

    Args:
      name: "iid", "contiguous", "paper_non_iid" or "dirichlet".
      labels: labels of all examples, or of all windows of a text.
      num_workers: number of workers, m.
      seed: seed of the draw; "contiguous" ignores it.
      concentration: parameter of "dirichlet"; the others ignore it.

    >>> import numpy as np
    >>> from olsgd_jax.training import make_partition
    >>> labels = np.arange(1000) % 10
    >>> len(make_partition("paper_non_iid", labels, num_workers=16, seed=0))
    16
    """
    check_choice("partition", name, tuple(PARTITIONS))
    if labels.ndim > 1 and name not in OF_TEXTS:
        raise ValueError(
            f"partition must be one of {', '.join(OF_TEXTS)} for a text, whose windows "
            f"have no class, got {name!r}"
        )
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


def _equal_parts(order: np.ndarray, num_workers: int, size: int) -> Shards:
    return list(order[: num_workers * size].reshape(num_workers, size))


def _check(num_examples: int, num_workers: int, seed: int) -> None:
    check_count("num_workers", num_workers)
    check_seed("seed", seed)
    if num_examples < num_workers:
        raise ValueError(
            f"num_workers must be at most the number of examples, got {num_workers} "
            f"workers and {num_examples} examples"
        )


def _check_labels(labels: np.ndarray) -> None:
    # A label that is not a number equals nothing, itself included.
    if not np.issubdtype(labels.dtype, np.integer):
        raise TypeError(
            f"labels must be whole numbers, got an array of {labels.dtype}; number the "
            "classes from 0"
        )
