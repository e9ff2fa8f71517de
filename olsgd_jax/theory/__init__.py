"""What the papers prove, as functions: mixing matrices, their limits, the bound."""

from olsgd_jax.theory.bound import Bound as Bound
from olsgd_jax.theory.bound import smallest_num_steps as smallest_num_steps
from olsgd_jax.theory.bound import theorem_bound as theorem_bound
from olsgd_jax.theory.bound import theorem_learning_rate as theorem_learning_rate
from olsgd_jax.theory.limits import contraction_factor as contraction_factor
from olsgd_jax.theory.limits import stationary_vector as stationary_vector
from olsgd_jax.theory.limits import virtual_model as virtual_model
from olsgd_jax.theory.mixing import cocod_sgd_matrix as cocod_sgd_matrix
from olsgd_jax.theory.mixing import easgd_matrix as easgd_matrix
from olsgd_jax.theory.mixing import local_sgd_matrix as local_sgd_matrix
from olsgd_jax.theory.mixing import (
    overlap_local_sgd_matrix as overlap_local_sgd_matrix,
)
from olsgd_jax.theory.mixing import slowmo_matrix as slowmo_matrix
