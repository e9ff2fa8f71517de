"""Builds data, task, optimizer, strategy and reduction from a config."""

from olsgd_jax.training.components.assembly import Components as Components
from olsgd_jax.training.components.assembly import build as build
from olsgd_jax.training.components.assembly import build_mesh as build_mesh
from olsgd_jax.training.components.assembly import build_task as build_task
from olsgd_jax.training.components.optimizer import OPTIMIZERS as OPTIMIZERS
from olsgd_jax.training.components.optimizer import build_optimizer as build_optimizer
from olsgd_jax.training.components.reduction import build_reduction as build_reduction
from olsgd_jax.training.components.schedule import build_schedule as build_schedule
from olsgd_jax.training.components.strategy import build_strategy as build_strategy
