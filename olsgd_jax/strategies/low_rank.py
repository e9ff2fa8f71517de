"""Helpers for low-rank compression: arrays as matrices, and orthonormal bases."""

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

    All such bases P of the same columns have the same product P Pᵀ. So this uses a QR
    decomposition instead of the paper's Gram-Schmidt. Its result is orthonormal even if
    the columns are linearly dependent.

    >>> basis = orthogonalise(jnp.array([[3.0], [4.0]]))
    >>> bool(jnp.allclose(jnp.abs(basis), jnp.array([[0.6], [0.8]])))
    True
    """
    # QR is not available in 16-bit precision.
    wide = x.astype(jnp.float32) if x.dtype.itemsize < 4 else x
    return jnp.linalg.qr(wide)[0].astype(x.dtype)
