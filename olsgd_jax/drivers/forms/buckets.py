"""Buckets: slices of a message, each mixed while the next is in transit.

A tree becomes one vector per dtype, as in `fragments`, split into buckets of nearly
equal size. On slow links several short buckets are also faster than one long vector.
"""

from collections.abc import Callable
from itertools import pairwise

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec

from olsgd_jax.drivers.forms.base import each
from olsgd_jax.reductions.base import Reduction
from olsgd_jax.round.local_steps import Steps
from olsgd_jax.round.participation import Outgoing
from olsgd_jax.round.worker_round import Form, tree_form
from olsgd_jax.types import ArrayTree
from olsgd_jax.workers.mesh import FSDP
from olsgd_jax.workers.sharding import on_shards, shard_specs

LEAST_BYTES = 2**21  # in a bucket; in smaller ones, the cost of each would matter
MOST_BUCKETS = 16  # only the last bucket is mixed after the mean has ended

Bucket = dict[str, jax.Array]
"""A vector of each dtype."""


def buckets_form(mesh: Mesh | None = None) -> Form:
    """Reduces a message bucket by bucket, as the host driver does, in one program."""

    def form(
        reduction: Reduction,
        outgoing: Outgoing,
        steps: Callable[..., Steps],
        num_steps: int,
    ):
        if reduction.two_means is not None:
            return tree_form(reduction, outgoing, steps, num_steps)
        message, _ = outgoing
        buckets = to_buckets(outgoing, count_buckets(message), mesh)
        sent = [reduction.reduce(*bucket) for bucket in buckets]
        sent, done = jax.lax.optimization_barrier((sent, steps()))
        return from_buckets(sent, outgoing, mesh), done

    return form


def count_buckets(models: ArrayTree) -> int:
    """Counts the buckets of a worker's models.

    >>> import jax.numpy as jnp
    >>> from olsgd_jax.drivers import count_buckets
    >>> count_buckets([jnp.zeros(2**20), jnp.zeros(2**19)])
    3
    """
    num_bytes = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(models))
    return max(1, min(num_bytes // LEAST_BYTES, MOST_BUCKETS))


def to_buckets(
    outgoing: Outgoing, num: int, mesh: Mesh | None = None
) -> list[Outgoing]:
    """Splits a message and its reduction's state into buckets.

    Each device of a worker splits its own shards.

    >>> import jax.numpy as jnp
    >>> from olsgd_jax.drivers import to_buckets
    >>> message = {"a": jnp.arange(2), "b": jnp.arange(4)}
    >>> [bucket for bucket, _ in to_buckets((message, ()), num=2)]
    [{'int32': Array([0, 1, 0], dtype=int32)}, {'int32': Array([1, 2, 3], dtype=int32)}]
    """
    specs = shard_specs(outgoing[0], mesh)
    cut = on_shards(lambda x: _cut(x, num), mesh, (specs,), PartitionSpec(FSDP))
    message, state = each(cut, outgoing)
    return [(message[i], tuple(x[i] for x in state)) for i in range(num)]


def from_buckets(
    buckets: list[Outgoing], like: Outgoing, mesh: Mesh | None = None
) -> Outgoing:
    """Undoes `to_buckets`; `like` gives the shapes.

    Each array depends only on the buckets that hold a part of it.

    >>> like = {"a": jnp.arange(2), "b": jnp.arange(4)}, ()
    >>> from_buckets(to_buckets(like, num=2), like)[0]["b"].tolist()
    [0, 1, 2, 3]
    """
    message, state = like
    specs = shard_specs(message, mesh)
    join = on_shards(_join, mesh, (PartitionSpec(FSDP), specs), specs)
    kept = [[own[i] for _, own in buckets] for i in range(len(state))]
    return (
        join([bucket for bucket, _ in buckets], message),
        tuple(join(own, message) for own in kept),
    )


def _cut(tree: ArrayTree, num: int) -> list[Bucket]:
    buckets: list[Bucket] = [{} for _ in range(num)]
    leaves = jax.tree.leaves(tree)
    for dtype in sorted({x.dtype.name for x in leaves}):
        arrays = [x.ravel() for x in leaves if x.dtype.name == dtype]
        size = sum(x.size for x in arrays)
        bounds = [size * p // num for p in range(num + 1)]
        for bucket, (first, last) in zip(buckets, pairwise(bounds), strict=True):
            if first < last:
                bucket[dtype] = _between(arrays, first, last)
    return buckets


def _join(buckets: list[Bucket], like: ArrayTree) -> ArrayTree:
    leaves, structure = jax.tree.flatten(like)
    taken, arrays = {x.dtype.name: 0 for x in leaves}, []
    for x in leaves:
        first = taken[x.dtype.name]
        last = taken[x.dtype.name] = first + x.size
        vectors = [bucket[x.dtype.name] for bucket in buckets if x.dtype.name in bucket]
        arrays.append(_between(vectors, first, last).reshape(x.shape) if x.size else x)
    return jax.tree.unflatten(structure, arrays)


def _between(vectors: list[jax.Array], first: int, last: int) -> jax.Array:
    """Takes elements `first` to `last` of the concatenated vectors."""
    parts, begin = [], 0
    for x in vectors:
        low, high = max(first - begin, 0), min(last - begin, x.size)
        if low < high:
            parts.append(x if high - low == x.size else x[low:high])
        begin += x.size
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts)
