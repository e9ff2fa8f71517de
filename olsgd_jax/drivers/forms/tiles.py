"""Splits trees into shards in the order of a TPU's memory, and joins them again.

TPUs store an array as consecutive tiles of 8 × 128 elements, with the axis that fills
the tiles last. A vector in this order needs no copy. In any other order every element
moves, which takes a copy of the model.
"""

import math

import jax
import jax.numpy as jnp
from jax import lax

from olsgd_jax.types import ArrayTree

ROWS, LANES = 8, 128  # size of a tile


def tile_shape(size: int) -> tuple[int, int]:
    """Rows and columns for `size` elements: whole tiles, or one row if there are few.

    >>> tile_shape(3), tile_shape(1025)
    ((1, 3), (16, 128))
    """
    tile = ROWS * LANES
    return (1, size) if size <= tile else (-(-size // tile) * ROWS, LANES)


def cut_tiles(tree: ArrayTree, num_shards: int) -> dict[str, jax.Array]:
    """Splits a tree into shards of equal size, padded with zeros at the end.

    >>> from olsgd_jax.drivers.forms.tiles import cut_tiles
    >>> x = jnp.arange(8 * 256.0).reshape(8, 256)
    >>> cut_tiles(x, num_shards=2)["float32"].ravel()[126:130].tolist()
    [126.0, 127.0, 256.0, 257.0]
    """
    leaves = jax.tree.leaves(tree)
    tiles = [_to_tiles(leaves[i]) for i in _order(leaves)]

    def cut_arrays(arrays: list[jax.Array]) -> jax.Array:
        size = sum(x.size for x in arrays)
        shape = num_shards, *tile_shape(-(-size // num_shards))
        # Part of the same concatenation, since padding its result would copy it.
        zeros = jnp.zeros(math.prod(shape) - size, arrays[0].dtype)
        return jnp.concatenate([*arrays, zeros]).reshape(shape)

    return {
        dtype: cut_arrays([x for x in tiles if x.dtype.name == dtype])
        for dtype in sorted({x.dtype.name for x in tiles})
    }


def join_tiles(shards: dict[str, jax.Array], like: ArrayTree) -> ArrayTree:
    """Undoes `cut_tiles`; `like` gives the shapes.

    >>> from olsgd_jax.drivers.forms.tiles import cut_tiles, join_tiles
    >>> join_tiles(cut_tiles(jnp.arange(5), num_shards=2), like=jnp.arange(5))
    Array([0, 1, 2, 3, 4], dtype=int32)
    """
    leaves, structure = jax.tree.flatten(like)
    vectors = {name: x.ravel() for name, x in shards.items()}
    taken, joined = dict.fromkeys(vectors, 0), list(leaves)
    for i in _order(leaves):
        x = leaves[i]
        name, first = x.dtype.name, taken[x.dtype.name]
        taken[name] = first + x.size
        part = vectors[name][first : first + x.size]
        # One by one: taking all parts at once needs a copy of the model.
        vectors[name], part = lax.optimization_barrier((vectors[name], part))
        joined[i] = _from_tiles(part, x)
    return jax.tree.unflatten(structure, joined)


def _order(leaves: list[jax.Array]) -> list[int]:
    """Puts arrays that do not fill whole tiles last, to keep the others aligned."""
    return sorted(range(len(leaves)), key=lambda i: leaves[i].size % (ROWS * LANES) > 0)


def _to_tiles(x: jax.Array) -> jax.Array:
    axis = _last_in_memory(x)
    if axis is None:
        return x.ravel()
    lanes = x.shape[axis] // LANES
    x = jnp.moveaxis(x, axis, -1).reshape(-1, ROWS, lanes, LANES)
    return x.swapaxes(1, 2).ravel()


def _from_tiles(vector: jax.Array, like: jax.Array) -> jax.Array:
    axis = _last_in_memory(like)
    if axis is None:
        return vector.reshape(like.shape)
    size = like.shape[axis]
    others = *like.shape[:axis], *like.shape[axis + 1 :]
    x = vector.reshape(-1, size // LANES, ROWS, LANES).swapaxes(1, 2)
    return jnp.moveaxis(x.reshape(*others, size), -1, axis)


def _last_in_memory(x: jax.Array) -> int | None:
    """The last axis that fills whole tiles together with the others, or None."""
    for axis in reversed(range(x.ndim)):
        lanes = x.shape[axis]
        if x.size and lanes % LANES == 0 and x.size // lanes % ROWS == 0:
            return axis
    return None
