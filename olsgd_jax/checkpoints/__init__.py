"""Checkpoints: what is kept of a run, so that it can go on where it was."""

from olsgd_jax.checkpoints.checkpoint import Checkpoint as Checkpoint
from olsgd_jax.checkpoints.directory import Checkpoints as Checkpoints
from olsgd_jax.checkpoints.due import Due as Due
