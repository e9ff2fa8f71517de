"""A directory of checkpoints: written beside the training, read with suspicion.

orbax writes a checkpoint in the background, under another name until it is whole, so a
process that is killed leaves the checkpoints before it as they were. Beside the arrays
lie facts of the caller's, as JSON, and the checksums of all files. A checkpoint that is
not as it was written is set aside under a name that ends with `.damaged`, and the one
before it is taken.
"""

import pathlib
from collections.abc import Callable

import orbax.checkpoint as ocp

from olsgd_jax.checkpoints.checkpoint import Checkpoint
from olsgd_jax.checkpoints.flat import (
    check_same_shapes,
    from_flat,
    shapes_of,
    targets,
    to_flat,
)
from olsgd_jax.checkpoints.keep import NewestAndBest, delete_going, numbers_in
from olsgd_jax.checkpoints.manager import make_manager
from olsgd_jax.checkpoints.packs import make_packs, pack, packed_targets, unpack
from olsgd_jax.checkpoints.seal import (
    DamagedError,
    check_seal_for_all,
    seal_unnamed,
    set_aside,
)
from olsgd_jax.checks import check_count
from olsgd_jax.types import ArrayTree


class Checkpoints:
    """The checkpoints of one run; close it, or use it as a context.

    All processes of a run make one, on a directory that they share, and call it alike.

    Args:
      directory: of the checkpoints alone; made where there is none.
      keep: how many of the newest stay, beside the one with the highest score.

    >>> import jax.numpy as jnp, tempfile
    >>> from olsgd_jax import Checkpoints
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
        self._saving = -1
        delete_going(self._directory)  # of a process that was killed
        self._policy = NewestAndBest(keep, self._directory)
        self._manager = make_manager(self._directory, self._policy, self._seal)

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
        about = {"facts": facts or {}, "shapes": shapes_of(flat), "packs": packs}
        about["score"] = self._policy.note(number, score)
        self.wait()
        self._saving = number
        self._manager.save(
            number,
            args=ocp.args.Composite(
                tree=ocp.args.StandardSave(pack(flat, packs)),
                about=ocp.args.JsonSave(about),
            ),
            force=True,
        )

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
                check_seal_for_all(self._directory / str(number))
            except DamagedError as damage:
                set_aside(self._directory / str(number), damage)
                self._manager.reload()
            else:
                return self._restore(number, like)
        return None

    def numbers(self) -> list[int]:
        """Lists all checkpoints, the newest first."""
        self.wait()
        return numbers_in(self._directory)

    def wait(self) -> None:
        """Waits until all is written."""
        self._manager.wait_until_finished()

    def close(self) -> None:
        """Waits, and ends what wrote in the background."""
        self._manager.close()
        delete_going(self._directory)

    def __enter__(self) -> "Checkpoints":
        """Gives itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Closes."""
        self.close()

    def _restore(
        self, number: int, like: ArrayTree | Callable[[dict], ArrayTree]
    ) -> Checkpoint:
        def read(**args: ocp.args.CheckpointArgs):
            return self._manager.restore(number, args=ocp.args.Composite(**args))

        about = read(about=ocp.args.JsonRestore())["about"]
        like = like(about["facts"]) if callable(like) else like
        where, asked = f"checkpoint {number} in {self._directory}", targets(like)
        check_same_shapes(where, about["shapes"], shapes_of(asked))
        packs = about["packs"]
        packed = ocp.args.StandardRestore(packed_targets(asked, packs))
        flat = unpack(read(tree=packed)["tree"], asked, packs)
        return Checkpoint(number, from_flat(flat, like), about["facts"])

    def _seal(self) -> None:
        """Seals what was just written, before it gets its name; in the background."""
        seal_unnamed(self._directory, self._saving)
        delete_going(self._directory)
