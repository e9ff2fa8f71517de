"""How orbax is asked to write checkpoints."""

import pathlib
from collections.abc import Callable

import orbax.checkpoint as ocp

from olsgd_jax.checkpoints.keep import GOING, NewestAndBest


def make_manager(
    directory: pathlib.Path, policy: NewestAndBest, when_written: Callable[[], None]
) -> ocp.CheckpointManager:
    """Makes orbax write in the background, and move away what does not stay.

    Args:
      directory: of the checkpoints.
      policy: says which of them stay.
      when_written: called with a checkpoint's files written, but not yet named.
    """
    return ocp.CheckpointManager(
        directory,
        options=ocp.CheckpointManagerOptions(
            preservation_policy=policy,
            todelete_subdir=GOING,
            cleanup_tmp_directories=True,
            async_options=ocp.AsyncOptions(post_finalization_callback=when_written),
        ),
    )
