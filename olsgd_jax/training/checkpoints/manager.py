"""A directory of checkpoints, written in the background and checked before reading.

orbax's `CheckpointManager` writes and deletes them. A checkpoint is a directory named
after its round. It gets that name once it is complete, and holds

    state           the arrays
    about           JSON: the caller's facts, and what orbax does not keep
    metrics         JSON: the score, if there is one
    checksums.json  checksums of all these files, and the version of this format

Plain orbax reads the arrays without this library:

    with ocp.CheckpointManager(directory) as manager:
        items = ocp.args.Composite(state=ocp.args.StandardRestore())
        state = manager.restore(manager.latest_step(), args=items)["state"]

A checkpoint that is not as it was written is renamed to end with `.damaged`, and the
one before it is used.
"""

import contextlib
import json
import math
import pathlib
from collections.abc import Callable
from typing import NamedTuple

import jax
import orbax.checkpoint as ocp
from orbax.checkpoint import checkpoint_managers

from olsgd_jax._checks import check_count, check_seed
from olsgd_jax.training.checkpoints.codec import (
    check_same_shapes,
    from_read,
    shapes_of,
    targets,
    to_arrays,
    weak_in,
    without_empty,
)
from olsgd_jax.training.checkpoints.integrity import (
    DamagedError,
    check_files_for_all,
    check_space,
    set_aside,
    set_unreadable_aside,
    write_checksums,
)
from olsgd_jax.training.files import writing
from olsgd_jax.types import ArrayTree


class Checkpoint(NamedTuple):
    """What `Checkpoints.restore` returns.

    >>> from olsgd_jax.training import Checkpoint
    >>> Checkpoint(number=3, tree=(), facts={"seed": 0}).number
    3
    """

    number: int
    tree: ArrayTree
    facts: dict


class Checkpoints:
    """The checkpoints of one run; close it, or use it in a `with` statement.

    All processes of a run make one for a shared directory, and call the same methods.

    Args:
      directory: holds the checkpoints and nothing else; made if it does not exist.
      keep: how many of the newest to keep, in addition to the one with the best score.

    >>> import jax.numpy as jnp, tempfile
    >>> from olsgd_jax.training import Checkpoints
    >>> with Checkpoints(tempfile.mkdtemp()) as checkpoints:
    ...     checkpoints.save(10, {"w": jnp.ones(3)}, {"loss": 0.5})
    ...     found = checkpoints.restore(like={"w": jnp.zeros(3)})
    >>> found.number, found.tree["w"].tolist(), found.facts
    (10, [1.0, 1.0, 1.0], {'loss': 0.5})
    """

    def __init__(self, directory: str | pathlib.Path, keep: int = 3) -> None:
        """Opens the directory; see above."""
        check_count("keep", keep)
        self._directory = pathlib.Path(directory).absolute()
        self._writing: int | None = None  # number of the checkpoint
        newest = checkpoint_managers.LatestN(keep)
        best = checkpoint_managers.BestN(
            get_metric_fn=_score, n=1, keep_checkpoints_without_metrics=False
        )
        options = ocp.CheckpointManagerOptions(
            preservation_policy=checkpoint_managers.AnyPreservationPolicy(
                [newest, best]
            ),
            best_fn=_score,  # or no scores are written
            cleanup_tmp_directories=True,
            async_options=ocp.AsyncOptions(post_finalization_callback=self._seal),
        )
        handlers = ocp.handlers.create_default_handler_registry(
            # Weights hardly compress, and trying takes time from the rounds.
            state=ocp.PyTreeCheckpointHandler(use_compression=False),
            about=ocp.JsonCheckpointHandler(),
        )
        set_unreadable_aside(self._directory)
        self._manager = ocp.CheckpointManager(
            self._directory, options=options, handler_registry=handlers
        )

    def save(
        self,
        number: int,
        tree: ArrayTree,
        facts: dict | None = None,
        score: float | None = None,
    ) -> None:
        """Saves a tree of arrays; writing continues in the background.

        Args:
          number: rounds or steps so far, above the number of every other checkpoint.
          tree: the arrays. They may be donated as soon as this returns.
          facts: what else to save, as JSON.
          score: the higher, the better; with None or NaN the checkpoint cannot be best.

        Raises:
          OSError: if this checkpoint, or the one before it, cannot be written.
        """
        check_seed("number", number)  # a whole number of 32 bits
        arrays = to_arrays(tree)
        about = {
            "facts": facts or {},
            "shapes": shapes_of(arrays),
            "weak": weak_in(arrays),
        }
        # A copy: the caller may change the facts while they are written.
        about = ocp.args.JsonSave(json.loads(json.dumps(about)))
        items: dict[str, ocp.args.CheckpointArgs] = {"about": about}
        written = without_empty(arrays)
        if jax.tree.leaves(written):
            items["state"] = ocp.args.PyTreeSave(written)
        metrics = {} if score is None or math.isnan(score) else {"score": float(score)}
        if (numbers := self.numbers()) and number <= numbers[0]:
            raise ValueError(
                f"number must be above {numbers[0]}, the newest checkpoint in "
                f"{self._directory}, got {number}; use another directory for another "
                "run"
            )
        self._writing = int(number)
        try:
            with self._naming_errors():
                check_space(self._directory, written)
                self._manager.save(
                    self._writing,
                    args=ocp.args.Composite(**items),
                    metrics=metrics,
                    force=True,  # orbax does not decide when to save
                )
        except Exception:
            self._writing = None
            raise

    def restore(
        self, like: ArrayTree | Callable[[dict], ArrayTree]
    ) -> Checkpoint | None:
        """Reads the newest checkpoint that is not damaged.

        Args:
          like: a tree of arrays, or of `jax.ShapeDtypeStruct`s with shardings, that
            says what to read and where to put it; or a function that returns such a
            tree for the checkpoint's facts.

        Returns:
          What was saved; None if there is no checkpoint.

        Raises:
          ValueError: if the checkpoint has other arrays or another format.
        """
        for number in self.numbers():
            path = self._directory / str(number)
            try:
                check_files_for_all(path)
            except DamagedError as damage:
                set_aside(path, damage)
            else:
                return _read(path, like)
        return None

    def numbers(self) -> list[int]:
        """Lists all checkpoints, the newest first."""
        self.wait()
        set_unreadable_aside(self._directory)
        self._manager.reload()
        return sorted(self._manager.all_steps(), reverse=True)

    def wait(self) -> None:
        """Waits until everything is written; raises an OSError if it cannot be."""
        if self._writing is None:
            return
        try:
            with self._naming_errors():
                self._manager.wait_until_finished()
        finally:
            self._writing = None

    def close(self) -> None:
        """Waits, and ends writing in the background."""
        try:
            self.wait()
        finally:
            self._manager.close()

    def __enter__(self) -> "Checkpoints":
        """Returns itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Closes."""
        self.close()

    def _naming_errors(self) -> contextlib.AbstractContextManager[None]:
        """Makes errors of the system name the checkpoint that cannot be written."""
        what = f"checkpoint {self._writing} in {self._directory}"
        return writing(what, "those before it are as they were")

    def _seal(self) -> None:
        """Adds checksums to a checkpoint before it gets its name, in the background."""
        name = f"{self._writing}{ocp.utils.TMP_DIR_SUFFIX}"
        write_checksums(self._directory / name)


def _read(
    path: pathlib.Path, like: ArrayTree | Callable[[dict], ArrayTree]
) -> Checkpoint:
    about = json.loads((path / "about" / "metadata").read_bytes())
    asked = targets(like(about["facts"]) if callable(like) else like)
    where = f"checkpoint {path.name} in {path.parent}"
    check_same_shapes(where, about["shapes"], shapes_of(asked))
    tree, written = None, without_empty(asked)
    if jax.tree.leaves(written):
        restore_args = ocp.checkpoint_utils.construct_restore_args(written)
        args = ocp.args.PyTreeRestore(item=written, restore_args=restore_args)
        with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as reader:
            tree = reader.restore(path / "state", args=args)
    whole = from_read(tree, asked, about["weak"])
    return Checkpoint(int(path.name), whole, about["facts"])


def _score(metrics: dict) -> float:
    return metrics.get("score", -math.inf)
