"""Trees as one vector, and in pieces of equal size, to be sent a part at a time."""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Int

from olsgd_jax.types import ArrayTree, Mean

ROWS, LANES = 8, 128  # of a tile, in which TPUs keep arrays of two axes and more


def to_vectors(tree: ArrayTree) -> dict[str, jax.Array]:
    """Joins all arrays of a dtype to a vector; most often there is one dtype.

    >>> to_vectors({"a": jnp.ones((1, 2)), "b": jnp.zeros(1)})
    {'float32': Array([1., 1., 0.], dtype=float32)}
    """
    leaves = jax.tree.leaves(tree)
    return {
        dtype: jnp.concatenate([x.ravel() for x in leaves if x.dtype.name == dtype])
        for dtype in sorted({x.dtype.name for x in leaves})
    }


def from_vectors(vectors: dict[str, jax.Array], like: ArrayTree) -> ArrayTree:
    """Undoes `to_vectors`; `like` has the shapes.

    >>> from_vectors({"float32": jnp.arange(3.0)}, like={"a": jnp.zeros((1, 2))})
    {'a': Array([[0., 1.]], dtype=float32)}
    """
    leaves, structure = jax.tree.flatten(like)
    taken, parts = dict.fromkeys(vectors, 0), []
    for x in leaves:
        first = taken[x.dtype.name]
        taken[x.dtype.name] = first + x.size
        parts.append(vectors[x.dtype.name][first : first + x.size].reshape(x.shape))
    return jax.tree.unflatten(structure, parts)


def cut(tree: ArrayTree, num_pieces: int) -> dict[str, jax.Array]:
    """Cuts a tree into pieces of equal size, the last filled up with zeros.

    >>> cut(jnp.arange(5), num_pieces=2)
    {'int32': Array([[[0, 1, 2]],
           [[3, 4, 0]]], dtype=int32)}
    """

    def cut_vector(x: jax.Array) -> jax.Array:
        shape = num_pieces, *piece_shape(-(-x.size // num_pieces))
        padding = shape[0] * shape[1] * shape[2] - x.size
        return jnp.pad(x, (0, padding)).reshape(shape)

    return jax.tree.map(cut_vector, to_vectors(tree))


def join(pieces: dict[str, jax.Array], like: ArrayTree) -> ArrayTree:
    """Undoes `cut`; `like` has the shapes.

    >>> join(cut(jnp.arange(5), num_pieces=2), like=jnp.arange(5))
    Array([0, 1, 2, 3, 4], dtype=int32)
    """
    return from_vectors(jax.tree.map(jnp.ravel, pieces), like)


def send_piece(
    pieces: ArrayTree, k: Int[Array, ""], beside: ArrayTree, send: Mean
) -> tuple[ArrayTree, ArrayTree]:
    """Puts what `send` makes of piece k in its place, beside a computation.

    Args:
      pieces: as `cut` makes them.
      k: which of them.
      beside: what the computation gives; nobody gets the piece before that is there.
      send: averages a tree over workers.

    Returns:
      The pieces, and `beside`.

    >>> pieces, _ = send_piece(jnp.arange(3), jnp.array(1), (), send=lambda x: 10 * x)
    >>> pieces.tolist()
    [0, 10, 2]
    """
    sent = send(jax.tree.map(lambda x: x[k], pieces))
    sent, beside = lax.optimization_barrier((sent, beside))
    return jax.tree.map(lambda x, new: x.at[k].set(new), pieces, sent), beside


def piece_shape(size: int) -> tuple[int, int]:
    """Rows and columns: whole tiles, that no padding makes larger than they are."""
    tile = ROWS * LANES
    return (1, size) if size <= tile else (-(-size // tile) * ROWS, LANES)
