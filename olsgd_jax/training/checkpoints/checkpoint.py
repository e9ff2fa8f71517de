"""One checkpoint, as it is read."""

import json
import pathlib
from collections.abc import Callable
from typing import NamedTuple

import orbax.checkpoint as ocp

from olsgd_jax.training.checkpoints.codec import (
    check_same_shapes,
    from_flat,
    shapes_of,
    targets,
)
from olsgd_jax.training.checkpoints.keep import ABOUT
from olsgd_jax.training.checkpoints.packs import packed_targets, unpack
from olsgd_jax.types import ArrayTree


class Checkpoint(NamedTuple):
    """What `Checkpoints.restore` gives.

    >>> from olsgd_jax.training import Checkpoint
    >>> Checkpoint(number=3, tree=(), facts={"seed": 0}).number
    3
    """

    number: int
    tree: ArrayTree
    facts: dict


def read_checkpoint(
    reader: ocp.AsyncCheckpointer,
    path: pathlib.Path,
    like: ArrayTree | Callable[[dict], ArrayTree],
) -> Checkpoint:
    """Reads a checkpoint that is whole; see `Checkpoints.restore`.

    Args:
      reader: orbax, as `make_writer` makes it.
      path: of the checkpoint, which has its number as a name.
      like: arrays like those in it, or what gives them, given the facts.
    """
    about = json.loads((path / ABOUT).read_text(encoding="utf-8"))
    like = like(about["facts"]) if callable(like) else like
    asked, packs = targets(like), about["packs"]
    where = f"checkpoint {path.name} in {path.parent}"
    check_same_shapes(where, about["shapes"], shapes_of(asked))
    packed = packed_targets(asked, packs)
    places = ocp.checkpoint_utils.construct_restore_args(packed)
    args = ocp.args.PyTreeRestore(item=packed, restore_args=places)
    flat = unpack(reader.restore(path, args=args), asked, packs)
    tree = from_flat(flat, like, about["weak"])
    return Checkpoint(int(path.name), tree, about["facts"])
