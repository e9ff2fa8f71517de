"""A directory of checkpoints: written beside the training, read with suspicion.

orbax writes a checkpoint in the background, under another name until it is whole, so a
process that is killed leaves the checkpoints before it as they were. Beside the arrays
lie facts of the caller's, as JSON, and the checksums of all files. A checkpoint that is
not as it was written is set aside under a name that ends with `.damaged`, and the one
before it is taken.
"""

import json
import pathlib
from collections.abc import Callable

import orbax.checkpoint as ocp

from olsgd_jax._checks import check_count
from olsgd_jax.training.checkpoints.checkpoint import Checkpoint, read_checkpoint
from olsgd_jax.training.checkpoints.codec import shapes_of, to_flat, weak_in
from olsgd_jax.training.checkpoints.integrity import (
    DamagedError,
    check_seal_for_all,
    seal_unnamed,
    set_aside,
)
from olsgd_jax.training.checkpoints.keep import (
    ABOUT,
    NewestAndBest,
    delete_going,
    move_away,
    numbers_in,
    open_directory,
)
from olsgd_jax.training.checkpoints.packs import make_packs, pack
from olsgd_jax.training.checkpoints.writer import (
    UNNAMED,
    make_writer,
    writing_checkpoint,
)
from olsgd_jax.types import ArrayTree


class Checkpoints:
    """The checkpoints of one run; close it, or use it as a context.

    All processes of a run make one, on a directory that they share, and call it alike.

    Args:
      directory: of the checkpoints alone; made where there is none.
      keep: how many of the newest stay, beside the one with the highest score.

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
        self._saving: tuple[int, str] | None = None  # number, and what ABOUT is to be
        open_directory(self._directory, f"*{UNNAMED}")
        self._policy = NewestAndBest(keep, self._directory)
        self._writer = make_writer(self._seal)

    def save(
        self,
        number: int,
        tree: ArrayTree,
        facts: dict | None = None,
        score: float = float("-inf"),
    ) -> None:
        """Saves a tree of arrays; writing goes on in the background.

        Args:
          number: of rounds or steps so far, above that of all before it.
          tree: what is saved. It may be donated as soon as this returns.
          facts: what else is to be kept, as it can be written in JSON.
          score: of how good it is.
        """
        flat = to_flat(tree)
        packs = make_packs(flat)
        about = {"facts": facts or {}, "score": self._policy.note(number, score)}
        about |= {"shapes": shapes_of(flat), "weak": weak_in(flat), "packs": packs}
        packed = ocp.args.PyTreeSave(pack(flat, packs))
        self.wait()
        self._saving = number, json.dumps(about)
        try:
            with writing_checkpoint(self._directory, number):
                self._writer.save(self._path(number), args=packed)
        except OSError:
            self._saving = None
            raise

    def restore(
        self, like: ArrayTree | Callable[[dict], ArrayTree]
    ) -> Checkpoint | None:
        """Reads the newest checkpoint that is whole.

        Args:
          like: a tree of the same arrays, or of `jax.ShapeDtypeStruct`s with a
            sharding; they say where those that are read are put. Or a function of the
            checkpoint's facts that gives it.

        Returns:
          What was saved; None where there is nothing.

        Raises:
          ValueError: if the checkpoint is of other arrays.
        """
        for number in self.numbers():
            try:
                check_seal_for_all(self._path(number))
            except DamagedError as damage:
                set_aside(self._path(number), damage)
            else:
                return read_checkpoint(self._writer, self._path(number), like)
        return None

    def numbers(self) -> list[int]:
        """Lists all checkpoints, the newest first."""
        self.wait()
        return numbers_in(self._directory)

    def wait(self) -> None:
        """Waits until all is written, or raises an OSError if it cannot be."""
        if self._saving is None:
            return
        try:
            with writing_checkpoint(self._directory, self._saving[0]):
                self._writer.wait_until_finished()
        finally:
            self._saving = None
        move_away(self._directory, self._policy)

    def close(self) -> None:
        """Waits, and ends what wrote in the background."""
        try:
            self.wait()
        finally:
            self._writer.close()
        delete_going(self._directory)

    def __enter__(self) -> "Checkpoints":
        """Gives itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Closes."""
        self.close()

    def _path(self, number: int) -> pathlib.Path:
        return self._directory / str(number)

    def _seal(self) -> None:
        """Seals what was just written, before it gets its name; in the background."""
        assert self._saving is not None
        number, about = self._saving
        seal_unnamed(self._directory / f"{number}{UNNAMED}", {ABOUT: about})
        delete_going(self._directory)
