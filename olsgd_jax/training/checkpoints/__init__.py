"""Checkpoints: what is kept of a run, so that it can go on where it was."""

from olsgd_jax.training.checkpoints.checkpoint import Checkpoint as Checkpoint
from olsgd_jax.training.checkpoints.manager import Checkpoints as Checkpoints
from olsgd_jax.training.checkpoints.schedule import Due as Due
