"""Flattens trees to one vector per dtype, and back; sums in at least float32."""

import jax
import jax.numpy as jnp

from olsgd_jax.types import ArrayTree


def to_vectors(tree: ArrayTree) -> dict[str, jax.Array]:
    """Concatenates all arrays of each dtype to a vector; often there is one dtype.

    >>> to_vectors({"a": jnp.ones((1, 2)), "b": jnp.zeros(1)})
    {'float32': Array([1., 1., 0.], dtype=float32)}
    """
    leaves = jax.tree.leaves(tree)
    return {
        dtype: jnp.concatenate([x.ravel() for x in leaves if x.dtype.name == dtype])
        for dtype in sorted({x.dtype.name for x in leaves})
    }


def from_vectors(vectors: dict[str, jax.Array], like: ArrayTree) -> ArrayTree:
    """Undoes `to_vectors`; `like` gives the shapes.

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


def at_least_float32(x: jax.Array) -> jax.Array:
    """Casts 16-bit floats to float32, and leaves all others as they are.

    >>> at_least_float32(jnp.ones(1, jnp.bfloat16)).dtype.name
    'float32'
    """
    return x.astype(jnp.float32) if x.dtype.itemsize < 4 else x
