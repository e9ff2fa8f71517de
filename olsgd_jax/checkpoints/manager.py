"""How orbax is asked to write checkpoints."""

import pathlib
from collections.abc import Callable

import orbax.checkpoint as ocp
from orbax.checkpoint.checkpoint_managers import preservation_policy


def make_manager(
    directory: pathlib.Path, keep: int, when_written: Callable[[], None]
) -> ocp.CheckpointManager:
    """Makes orbax write in the background, and keep some of what it wrote.

    Args:
      directory: of the checkpoints.
      keep: how many of the newest stay, beside the one with the highest score.
      when_written: called with a checkpoint's files written, but not yet named.
    """
    best = preservation_policy.BestN(
        get_metric_fn=lambda metrics: metrics["score"], n=1
    )
    newest = preservation_policy.LatestN(keep)
    return ocp.CheckpointManager(
        directory,
        options=ocp.CheckpointManagerOptions(
            preservation_policy=preservation_policy.AnyPreservationPolicy(
                [newest, best]
            ),
            cleanup_tmp_directories=True,
            async_options=ocp.AsyncOptions(post_finalization_callback=when_written),
        ),
    )


def metrics_of(score: float) -> dict[str, float]:
    """Gives a score as orbax takes it: JSON has no infinity."""
    return {"score": max(score, -1e300)}
