"""Models in parcels, so that one can be mixed while the next is on its way.

A tree becomes one vector per dtype, as in `pieces`, cut into parcels of nearly equal
size. On slow links several short ones also take less time than one long vector.
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
from olsgd_jax.round.worker_round import Form
from olsgd_jax.types import ArrayTree
from olsgd_jax.workers.mesh import FSDP
from olsgd_jax.workers.sharding import on_parts, part_specs

LEAST_BYTES = 2**21  # of a parcel, or what each costs by itself would count
MOST_PARCELS = 16  # the last is all that is mixed after the mean

Parcel = dict[str, jax.Array]
"""A vector of each dtype."""


def parcels_form(mesh: Mesh | None = None) -> Form:
    """Averages the models parcel by parcel, as the host driver does, in one program."""

    def form(
        reduction: Reduction,
        outgoing: Outgoing,
        steps: Callable[..., Steps],
        num_steps: int,
    ):
        del num_steps
        message, _ = outgoing
        packed = pack_outgoing(outgoing, count_parcels(message), mesh)
        sent = [reduction.reduce(*x) for x in packed]
        sent, done = jax.lax.optimization_barrier((sent, steps()))
        return unpack_outgoing(sent, outgoing, mesh), done

    return form


def pack_outgoing(
    outgoing: Outgoing, num: int, mesh: Mesh | None
) -> list[tuple[Parcel, tuple[Parcel, ...]]]:
    """Packs a message and what its reduction keeps, parcel by parcel."""
    message, state = each(lambda x: pack(x, num, mesh), outgoing)
    return [(message[i], tuple(x[i] for x in state)) for i in range(num)]


def unpack_outgoing(
    parcels: list[tuple[Parcel, tuple[Parcel, ...]]],
    like: Outgoing,
    mesh: Mesh | None,
) -> Outgoing:
    """Undoes `pack_outgoing`; `like` has the shapes."""
    message, state = like
    kept = zip(*(own for _, own in parcels), strict=True) if state else ()
    return (
        unpack([x for x, _ in parcels], message, mesh),
        tuple(unpack([*x], message, mesh) for x in kept),
    )


def count_parcels(models: ArrayTree) -> int:
    """Says how many parcels a worker's models make.

    >>> count_parcels([jnp.zeros(2**20), jnp.zeros(2**19)])
    3
    """
    num_bytes = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(models))
    return max(1, min(num_bytes // LEAST_BYTES, MOST_PARCELS))


def pack(models: ArrayTree, num: int, mesh: Mesh | None) -> list[Parcel]:
    """Makes parcels of a worker's arrays, on each device of the parts it has."""
    specs = part_specs(models, mesh)
    return on_parts(lambda x: to_parcels(x, num), mesh, (specs,), PartitionSpec(FSDP))(
        models
    )


def unpack(parcels: list[Parcel], like: ArrayTree, mesh: Mesh | None) -> ArrayTree:
    """Undoes `pack`; `like` has the shapes."""
    specs = part_specs(like, mesh)
    undo = on_parts(from_parcels, mesh, (PartitionSpec(FSDP), specs), specs)
    return undo(parcels, like)


def to_parcels(tree: ArrayTree, num: int) -> list[Parcel]:
    """Cuts a tree into parcels.

    >>> to_parcels({"a": jnp.arange(2), "b": jnp.arange(4)}, num=2)
    [{'int32': Array([0, 1, 0], dtype=int32)}, {'int32': Array([1, 2, 3], dtype=int32)}]
    """
    parcels: list[Parcel] = [{} for _ in range(num)]
    leaves = jax.tree.leaves(tree)
    for dtype in sorted({x.dtype.name for x in leaves}):
        arrays = [x.ravel() for x in leaves if x.dtype.name == dtype]
        size = sum(x.size for x in arrays)
        bounds = [size * p // num for p in range(num + 1)]
        for parcel, (first, last) in zip(parcels, pairwise(bounds), strict=True):
            if first < last:
                parcel[dtype] = _between(arrays, first, last)
    return parcels


def from_parcels(parcels: list[Parcel], like: ArrayTree) -> ArrayTree:
    """Undoes `to_parcels`; `like` has the shapes.

    An array needs only those parcels that hold some of it.

    >>> like = {"a": jnp.arange(2), "b": jnp.arange(4)}
    >>> from_parcels(to_parcels(like, num=2), like)["b"].tolist()
    [0, 1, 2, 3]
    """
    leaves, structure = jax.tree.flatten(like)
    taken, arrays = {x.dtype.name: 0 for x in leaves}, []
    for x in leaves:
        first = taken[x.dtype.name]
        last = taken[x.dtype.name] = first + x.size
        vectors = [parcel[x.dtype.name] for parcel in parcels if x.dtype.name in parcel]
        arrays.append(_between(vectors, first, last).reshape(x.shape) if x.size else x)
    return jax.tree.unflatten(structure, arrays)


def _between(vectors: list[jax.Array], first: int, last: int) -> jax.Array:
    """Takes elements out of vectors that lie one behind the other."""
    parts, begin = [], 0
    for x in vectors:
        low, high = max(first - begin, 0), min(last - begin, x.size)
        if low < high:
            parts.append(x if high - low == x.size else x[low:high])
        begin += x.size
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts)
