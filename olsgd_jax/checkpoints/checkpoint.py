"""One checkpoint, as it is read."""

from typing import NamedTuple

from olsgd_jax.types import ArrayTree


class Checkpoint(NamedTuple):
    """What `Checkpoints.restore` gives.

    >>> from olsgd_jax import Checkpoint
    >>> Checkpoint(number=3, tree=(), facts={"seed": 0}).number
    3
    """

    number: int
    tree: ArrayTree
    facts: dict
