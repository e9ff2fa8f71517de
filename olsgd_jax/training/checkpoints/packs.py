"""Packs: small arrays of a checkpoint, side by side in one that is written for them.

To write an array costs the same however small it is, and once more for every device
that holds a part: 137 arrays of 16 workers are 2,192 parts. So those of one type, with
as many rows (their first axis) and placed alike, are written as one matrix; all types
of 32 bits are one, as the bits that they are. Arrays with large rows are written as
they are, since a pack is a copy, and so are those with rows that several devices share.
"""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec, Sharding

from olsgd_jax.training.checkpoints.codec import Flat
from olsgd_jax.types import ArrayTree

LARGEST = 2**20
"""Bytes of a row that is still packed."""
LARGEST_WHOLE = 2**26
"""Bytes of a pack that is still written as one part."""

_OF_32_BITS = (jnp.float32, jnp.int32, jnp.uint32)

Packs = list[list[str]]
"""The names of the arrays of every pack."""


def make_packs(flat: Flat) -> Packs:
    """Says which arrays are written as one.

    >>> import jax.numpy as jnp
    >>> rows = {"a": jnp.zeros(4), "b": jnp.zeros((4, 2, 3))}
    >>> make_packs({**rows, "other": jnp.zeros(5), "large": jnp.zeros((4, 2**19))})
    [['a', 'b']]
    """
    groups: dict[tuple, list[str]] = {}
    for name, x in flat.items():
        if x.size and x.ndim and x.nbytes // len(x) <= LARGEST and _has_whole_rows(x):
            place = _of_rows(x.sharding) or x.sharding
            groups.setdefault((_packed_type(x), len(x), place), []).append(name)
    return [names for names in groups.values() if len(names) > 1]


def pack(flat: Flat, packs: Packs) -> dict[str, ArrayTree]:
    """Puts arrays side by side, as `make_packs` says."""
    matrices = {}
    for number, names in enumerate(packs):
        rows = _of_rows(flat[names[0]].sharding)
        matrices[str(number)] = _whole(_joined([flat[name] for name in names], rows))
    return _as_written(_alone(flat, packs), matrices)


def packed_targets(
    asked: dict[str, jax.ShapeDtypeStruct], packs: Packs
) -> dict[str, ArrayTree]:
    """Says what is to be read for the arrays that are asked for."""

    def matrix(names: list[str]) -> jax.ShapeDtypeStruct:
        first = asked[names[0]]
        width = sum(math.prod(asked[name].shape[1:]) for name in names)
        place = _of_rows(first.sharding) or first.sharding
        shape, dtype = (first.shape[0], width), _packed_type(first)
        return jax.ShapeDtypeStruct(shape, dtype, sharding=place)

    matrices = {str(number): matrix(names) for number, names in enumerate(packs)}
    return _as_written(_alone(asked, packs), matrices)


def unpack(
    found: dict[str, ArrayTree], asked: dict[str, jax.ShapeDtypeStruct], packs: Packs
) -> Flat:
    """Undoes `pack`, and puts arrays where they are asked for.

    >>> import jax.numpy as jnp
    >>> from olsgd_jax.training.checkpoints.codec import targets
    >>> flat = {"a": jnp.array([1, 2]), "b": jnp.array([[3, 4], [5, 6]])}
    >>> found = pack(flat, [["a", "b"]])
    >>> found["packs"]["0"].tolist()
    [[1, 3, 4], [2, 5, 6]]
    >>> unpack(found, targets(flat), [["a", "b"]])["b"].tolist()
    [[3, 4], [5, 6]]
    """
    flat = {
        name: found["alone"][number]
        for number, name in _alone({name: name for name in asked}, packs).items()
    }
    for number, names in enumerate(packs):
        kinds = tuple((asked[name].shape, asked[name].dtype) for name in names)
        parts = _parted(found["packs"][str(number)], kinds)
        for name, part in zip(names, parts, strict=True):
            flat[name] = jax.device_put(part, asked[name].sharding)
    return flat


def _whole(matrix: jax.Array) -> jax.Array | np.ndarray:
    """Takes a small pack to the host, where it is one part.

    Several processes write what each has. A large pack is read a part at a time.
    """
    small = matrix.nbytes <= LARGEST_WHOLE
    return np.asarray(matrix) if small and jax.process_count() == 1 else matrix


@functools.partial(jax.jit, static_argnames="place")
def _joined(arrays: list[jax.Array], place: Sharding | None) -> jax.Array:
    rows = [_as_type(x, _packed_type(x)).reshape(len(x), -1) for x in arrays]
    matrix = jnp.concatenate(rows, axis=1)
    return matrix if place is None else lax.with_sharding_constraint(matrix, place)


@functools.partial(jax.jit, static_argnames="kinds")
def _parted(
    matrix: jax.Array, kinds: tuple[tuple[tuple[int, ...], jnp.dtype], ...]
) -> list[jax.Array]:
    parts, begin = [], 0
    for shape, dtype in kinds:
        end = begin + math.prod(shape[1:])
        parts.append(_as_type(matrix[:, begin:end].reshape(shape), dtype))
        begin = end
    return parts


def _packed_type(x: jax.Array | jax.ShapeDtypeStruct) -> jnp.dtype:
    return jnp.dtype(jnp.uint32) if x.dtype in _OF_32_BITS else x.dtype


def _as_type(x: jax.Array, dtype: jnp.dtype) -> jax.Array:
    return x if x.dtype == dtype else lax.bitcast_convert_type(x, dtype)


def _has_whole_rows(x: jax.Array) -> bool:
    return x.sharding.shard_shape(x.shape)[1:] == x.shape[1:]


def _of_rows(sharding: Sharding) -> NamedSharding | None:
    """Places rows as an array of more axes has them; None where there is no mesh."""
    if not isinstance(sharding, NamedSharding):
        return None
    spec = PartitionSpec(*sharding.spec[:1])
    return NamedSharding(sharding.mesh, spec, memory_kind=sharding.memory_kind)


def _alone(flat: dict, packs: Packs) -> dict:
    """Numbers what is in no pack; names need not do as those of files."""
    names = sorted(flat.keys() - {name for names in packs for name in names})
    return {str(number): flat[name] for number, name in enumerate(names)}


def _as_written(alone: dict, matrices: dict) -> dict[str, ArrayTree]:
    """Leaves out what is empty: orbax does not write it."""
    return {name: x for name, x in (("alone", alone), ("packs", matrices)) if x}
