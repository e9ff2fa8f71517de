"""Mixing matrices: the mix at the end of a round as one matrix, P.

The columns of X are the models: first the m workers' models, then the other variables
that outlive a step. G has a gradient in every worker's column and 0 in all others. A
local step is

    X ← (X − γ G) W        W = P at the end of a round, the identity otherwise

so column j of P holds the weights of the new column j. The local optimizer is plain
SGD. Sync SGD is then Local SGD with a mix at every step. Means in low rank have no
such matrix: their basis depends on the messages, so they are not linear in them.

References: arXiv:2002.09539 (Overlap Local-SGD, section 2), 1805.09767 (Local SGD),
1412.6651 (EASGD), 1906.12043 (CoCoD-SGD), 1910.00643 (SlowMo).
"""

import numpy as np
from jaxtyping import Float

from olsgd_jax._checks import check_count, check_number

Matrix = Float[np.ndarray, "columns columns"]


def overlap_local_sgd_matrix(
    num_workers: int, pullback: float, anchor_momentum: float = 0.0
) -> Matrix:
    """Gives P of Overlap Local-SGD, with the columns x₁ … xₘ, z, and v if β > 0.

        xᵢ ← (1 − α) xᵢ + α z
        v  ← β v + (meanᵢ xᵢ − z)      of the mixed xᵢ
        z  ← z + v                     at β = 0 this is z ← meanᵢ xᵢ

    As in the paper, the anchor moves as soon as the models are mixed. The strategy
    moves its anchor a round later, when their mean has arrived, and before it uses it.

    Args:
      num_workers: number of workers, m.
      pullback: α in [0, 1].
      anchor_momentum: β in [0, 1).

    >>> from olsgd_jax.theory import overlap_local_sgd_matrix
    >>> overlap_local_sgd_matrix(num_workers=2, pullback=0.5)
    array([[0.5 , 0.  , 0.25],
           [0.  , 0.5 , 0.25],
           [0.5 , 0.5 , 0.5 ]])
    """
    check_count("num_workers", num_workers)
    check_number("pullback", pullback, 0, 1, "[]")
    check_number("anchor_momentum", anchor_momentum, 0, 1, "[)")
    m, alpha, beta = num_workers, float(pullback), float(anchor_momentum)
    kept, mean = (1 - alpha) * np.eye(m), np.full((m, 1), (1 - alpha) / m)
    if beta == 0:
        return np.block([[kept, mean], [np.full((1, m), alpha), alpha]])
    return np.block(
        [
            [kept, mean, mean],
            [np.full((1, m), alpha), alpha, alpha - 1],
            [np.zeros((1, m)), beta, beta],
        ]
    )


def local_sgd_matrix(num_workers: int) -> Matrix:
    """Gives P of Local SGD, with the columns x₁ … xₘ: xᵢ ← meanⱼ xⱼ.

    >>> from olsgd_jax.theory import local_sgd_matrix
    >>> local_sgd_matrix(num_workers=2)
    array([[0.5, 0.5],
           [0.5, 0.5]])
    """
    check_count("num_workers", num_workers)
    return np.full((num_workers, num_workers), 1 / num_workers)


def easgd_matrix(num_workers: int, moving_rate: float) -> Matrix:
    """Gives P of EASGD, with the columns x₁ … xₘ, z. It is symmetric.

        xᵢ ← xᵢ − a (xᵢ − z)
        z  ← z + a Σᵢ (xᵢ − z)         both from the old z

    Args:
      num_workers: number of workers, m.
      moving_rate: m a, above 0. The strategy allows at most 1. The matrix allows more,
        to show what happens: from a + m a = 2 on, the models no longer converge.

    >>> from olsgd_jax.theory import easgd_matrix
    >>> easgd_matrix(num_workers=2, moving_rate=0.5)
    array([[0.75, 0.  , 0.25],
           [0.  , 0.75, 0.25],
           [0.25, 0.25, 0.5 ]])
    """
    check_count("num_workers", num_workers)
    check_number("moving_rate", moving_rate, 0, float("inf"), "()")
    m, a = num_workers, float(moving_rate) / num_workers
    return np.block(
        [
            [(1 - a) * np.eye(m), np.full((m, 1), a)],
            [np.full((1, m), a), 1 - float(moving_rate)],
        ]
    )


def cocod_sgd_matrix(num_workers: int) -> Matrix:
    """Gives P of CoCoD-SGD, with the columns x₁ … xₘ, s₁ … sₘ.

        xᵢ ← meanⱼ sⱼ + (xᵢ − sᵢ)      s: the models at the start of the round
        sᵢ ← xᵢ                        the mixed xᵢ

    >>> from olsgd_jax.theory import cocod_sgd_matrix
    >>> cocod_sgd_matrix(num_workers=2)
    array([[ 1. ,  0. ,  1. ,  0. ],
           [ 0. ,  1. ,  0. ,  1. ],
           [-0.5,  0.5, -0.5,  0.5],
           [ 0.5, -0.5,  0.5, -0.5]])
    """
    check_count("num_workers", num_workers)
    own = np.eye(num_workers)
    mixed = np.vstack([own, np.full_like(own, 1 / num_workers) - own])
    return np.hstack([mixed, mixed])


def slowmo_matrix(num_workers: int, momentum: float, step_size: float = 1.0) -> Matrix:
    """Gives P of SlowMo, with the columns x₁ … xₘ, x, v.

        v  ← β v + (x − meanᵢ xᵢ)      x: the common start of the round
        x  ← x − s v
        xᵢ ← x

    Args:
      num_workers: number of workers, m.
      momentum: β in [0, 1).
      step_size: s, above 0.

    >>> from olsgd_jax.theory import slowmo_matrix
    >>> slowmo_matrix(num_workers=1, momentum=0.5, step_size=0.25)
    array([[ 0.25 ,  0.25 , -1.   ],
           [ 0.75 ,  0.75 ,  1.   ],
           [-0.125, -0.125,  0.5  ]])
    """
    check_count("num_workers", num_workers)
    check_number("momentum", momentum, 0, 1, "[)")
    check_number("step_size", step_size, 0, float("inf"), "()")
    m = num_workers
    velocity = np.array([*[-1 / m] * m, 1, momentum])
    start = np.array([*[0.0] * m, 1, 0]) - step_size * velocity
    return np.column_stack([*[start] * (m + 1), velocity])
