"""Limits of mixing: where it leads without gradients, how fast, and what it preserves.

A mixing matrix P has a left and a right eigenvector for its eigenvalue 1:

    lᵀ P = lᵀ      equal models stay equal; l is 1 for a model's column and 0 for a
                   velocity's
    P v = v        mixing does not move the virtual model y = X v: X P v = X v

If lᵀ v = 1 and all other eigenvalues have modulus below 1, then Pⁿ → v lᵀ: mixing alone
takes all models to y. Gradients move y by −γ G v, which is

    y ← y − γ_eff meanᵢ gᵢ,  γ_eff = γ Σᵢ vᵢ over the workers' columns

if all workers have the same weight. Overlap Local-SGD with momentum β has

    y = (1 − w) meanᵢ xᵢ + w z + c (velocity),  γ_eff = (1 − w) γ,
    w = α (1 − β) / (1 − α β),  c = α β / (1 − α β)

and at β = 0 this is the paper's y = (1 − α) meanᵢ xᵢ + α z. (The theorem has a sum
instead of the mean. The appendix has the mean, and only the mean satisfies P v = v with
Σ v = 1.)

Reference: arXiv:2002.09539 (Overlap Local-SGD, appendix A).
"""

import numpy as np
from jaxtyping import Float

_SAME = 1e-6  # rounding splits a double eigenvalue into two, about 1e-8 apart


def stationary_vector(
    matrix: Float[np.ndarray, "rows columns"],
) -> Float[np.ndarray, " columns"]:
    """Gives the weights v of the virtual model: P v = v.

    The weights of all models sum to 1, so if all models are equal, the virtual model is
    the same. A velocity's weight does not count in that sum.

    Raises:
      ValueError: if 1 is not a simple eigenvalue of the matrix, for example because
        workers never meet.

    >>> from olsgd_jax.theory import overlap_local_sgd_matrix, stationary_vector
    >>> stationary_vector(overlap_local_sgd_matrix(num_workers=2, pullback=0.6))
    array([0.2, 0.2, 0.6])
    """
    return _kept_vectors(matrix)[0]


def contraction_factor(matrix: Float[np.ndarray, "rows columns"]) -> float:
    """Gives the largest modulus among the eigenvalues of P other than the 1.

    In the long run, every mix multiplies the models' distances to y by this factor.
    Above 1 they grow. For Overlap Local-SGD without momentum it is the paper's
    ζ = ‖P − v 1ᵀ‖ = 1 − α (with one worker, 0). If P is not diagonalisable, as for
    CoCoD-SGD, only half of the digits are accurate: 0 comes out as 1e-8.

    Raises:
      ValueError: in the same cases as `stationary_vector`.

    >>> from olsgd_jax.theory import contraction_factor, overlap_local_sgd_matrix
    >>> matrix = overlap_local_sgd_matrix(num_workers=4, pullback=0.6)
    >>> round(contraction_factor(matrix), 6)
    0.4
    >>> matrix = overlap_local_sgd_matrix(4, pullback=0.6, anchor_momentum=0.7)
    >>> round(contraction_factor(matrix), 6)  # √((1 − α) β)
    0.52915
    """
    v, l = _kept_vectors(matrix)
    # P − v lᵀ has the eigenvalues of P, with 0 instead of the 1.
    return float(np.abs(np.linalg.eigvals(matrix - np.outer(v, l))).max())


def virtual_model(
    models: Float[np.ndarray, "*dims columns"], vector: Float[np.ndarray, " weights"]
) -> Float[np.ndarray, "*dims"]:
    """Gives the virtual model y = X v.

    Args:
      models: X, with one column for each row of the mixing matrix.
      vector: v, from `stationary_vector`.

    >>> import numpy as np
    >>> from olsgd_jax.theory import virtual_model
    >>> models = np.array([[1.0, 3.0, 6.0]])  # x₁, x₂, z
    >>> virtual_model(models, np.array([0.25, 0.25, 0.5]))
    array([4.])
    """
    if models.shape[-1:] != vector.shape:
        raise ValueError(
            f"vector must have a weight for each of the {models.shape[-1]} columns of "
            f"models, got {len(vector)}"
        )
    return models @ vector


def _kept_vectors(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Gives v and l with P v = v, lᵀ P = lᵀ, lᵀ v = 1, and 1 the largest entry of l."""
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"matrix must be square, got shape {matrix.shape}")
    eigenvalues = np.linalg.eigvals(matrix)
    count = int(np.sum(np.abs(eigenvalues - 1) < _SAME))
    if count != 1:
        raise ValueError(
            f"matrix must have the eigenvalue 1 exactly once, got it {count} times; "
            "without it mixing moves equal models, and if it is repeated the limit is "
            "not unique"
        )
    left, _, right = np.linalg.svd(matrix - np.eye(len(matrix)))
    v, l = right[-1], left[:, -1]
    l = l / l[np.abs(l).argmax()]
    return v / (l @ v), l
