"""The theory of the papers: mixing matrices, their limits, the convergence bound."""

from olsgd_jax.theory.bound import (
    Bound,
    smallest_num_steps,
    theorem_bound,
    theorem_learning_rate,
)
from olsgd_jax.theory.limits import contraction_factor, stationary_vector, virtual_model
from olsgd_jax.theory.mixing import (
    cocod_sgd_matrix,
    easgd_matrix,
    local_sgd_matrix,
    overlap_local_sgd_matrix,
    slowmo_matrix,
)

__all__ = [
    "Bound",
    "cocod_sgd_matrix",
    "contraction_factor",
    "easgd_matrix",
    "local_sgd_matrix",
    "overlap_local_sgd_matrix",
    "slowmo_matrix",
    "smallest_num_steps",
    "stationary_vector",
    "theorem_bound",
    "theorem_learning_rate",
    "virtual_model",
]
