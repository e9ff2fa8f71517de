"""Theory: mixing matrices, their limits, the convergence bound, and stability."""

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
from olsgd_jax.theory.stability import (
    Limits,
    Radii,
    nearest_stable,
    round_radii,
    stable_curvature,
)

__all__ = [
    "Bound",
    "Limits",
    "Radii",
    "cocod_sgd_matrix",
    "contraction_factor",
    "easgd_matrix",
    "local_sgd_matrix",
    "nearest_stable",
    "overlap_local_sgd_matrix",
    "round_radii",
    "slowmo_matrix",
    "smallest_num_steps",
    "stable_curvature",
    "stationary_vector",
    "theorem_bound",
    "theorem_learning_rate",
    "virtual_model",
]
