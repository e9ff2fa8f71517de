"""Trees in pieces of equal size, so that a model can be sent a part at a time."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from olsgd_jax.types import ArrayTree, Mean


def cut(tree: ArrayTree, num_pieces: int) -> ArrayTree:
    """Cuts every array into pieces of equal size, the last filled up with zeros.

    >>> cut(jnp.arange(5), num_pieces=2)
    Array([[0, 1, 2],
           [3, 4, 0]], dtype=int32)
    """

    def cut_array(x: jax.Array) -> jax.Array:
        size = -(-x.size // num_pieces)
        padding = (0, size * num_pieces - x.size)
        return jnp.pad(x.ravel(), padding).reshape(num_pieces, size)

    return jax.tree.map(cut_array, tree)


def join(pieces: ArrayTree, like: ArrayTree) -> ArrayTree:
    """Undoes `cut`; `like` has the shapes.

    >>> join(cut(jnp.arange(5), num_pieces=2), like=jnp.arange(5))
    Array([0, 1, 2, 3, 4], dtype=int32)
    """
    return jax.tree.map(lambda p, x: p.ravel()[: x.size].reshape(x.shape), pieces, like)


def send_piece(
    tree: ArrayTree, k: Int[Array, ""], arrived: ArrayTree, mean: Mean
) -> ArrayTree:
    """Averages piece k of a tree, and puts it with the pieces that arrived before.

    >>> arrived = jnp.zeros((2, 2), int)
    >>> send_piece(jnp.arange(4), jnp.array(1), arrived, mean=lambda x: 10 * x)
    Array([[ 0,  0],
           [20, 30]], dtype=int32)
    """
    num_pieces = jax.tree.leaves(arrived)[0].shape[0]
    piece = mean(jax.tree.map(lambda x: x[k], cut(tree, num_pieces)))
    return jax.tree.map(lambda pieces, new: pieces.at[k].set(new), arrived, piece)
