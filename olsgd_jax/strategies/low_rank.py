"""Matrices for low-rank compression: arrays as matrices, and bases of their columns."""

import jax.numpy as jnp
from jaxtyping import Array, Float


def as_matrix(x: Float[Array, "..."]) -> Float[Array, "rows columns"]:
    """Views an array of two or more axes as a matrix; the last axis is its columns.

    >>> as_matrix(jnp.zeros((3, 3, 16, 32))).shape
    (144, 32)
    """
    return x.reshape(-1, x.shape[-1])


def orthogonalise(x: Float[Array, "rows rank"]) -> Float[Array, "rows rank"]:
    """Gives an orthonormal basis of the columns of a matrix with at least as many rows.

    Any such basis P of the same columns gives the same product P Pᵀ. So the
    Gram-Schmidt of the paper is a QR decomposition here, which also stays
    orthonormal where columns depend on each other.

    >>> basis = orthogonalise(jnp.array([[3.0], [4.0]]))
    >>> bool(jnp.allclose(jnp.abs(basis), jnp.array([[0.6], [0.8]])))
    True
    """
    # Half precisions have no decomposition.
    wide = x.astype(jnp.float32) if x.dtype.itemsize < 4 else x
    return jnp.linalg.qr(wide)[0].astype(x.dtype)
