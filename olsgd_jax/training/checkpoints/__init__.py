"""Checkpoints: what is saved of a run, so that it can resume where it stopped."""

from olsgd_jax.training.checkpoints.manager import Checkpoint as Checkpoint
from olsgd_jax.training.checkpoints.manager import Checkpoints as Checkpoints
from olsgd_jax.training.checkpoints.schedule import Due as Due
