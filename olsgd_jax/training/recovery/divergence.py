"""Divergence: finds numbers that are not finite, and the workers that have them.

Gradients need no check of their own: at the end of its local step, a gradient that is
not finite has reached the parameters and the optimizer state.
"""

import functools
import math
from collections.abc import Iterable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Bool

from olsgd_jax.round.local_steps import WorkerState
from olsgd_jax.training.config import Config
from olsgd_jax.types import ArrayTree
from olsgd_jax.workers.axis import on_workers
from olsgd_jax.workers.sharding import to_host


class DivergedError(FloatingPointError):
    """A run has numbers that are not finite.

    >>> from olsgd_jax.training import DivergedError
    >>> DivergedError("train_loss must stay finite, got nan", number=3).round
    3
    """

    def __init__(self, message: str, number: int) -> None:
        """Remembers the round that diverged."""
        super().__init__(message)
        self.round = number


def diverged(
    name: str,
    value: float | str,
    number: int,
    config: Config,
    last_loss: float | None,
    workers: Iterable[int] = (),
) -> DivergedError:
    """Makes the error that says what is not finite.

    Args:
      name: name of the quantity that is not finite.
      value: its value.
      number: number of the round.
      config: options of the run.
      last_loss: the last finite train_loss.
      workers: the workers that have it; none if it is a mean over all of them.
    """
    whose = ", ".join(map(str, workers))
    return DivergedError(
        f"{name} must stay finite, got {value} in round {number} of {config.strategy}"
        f"{f', worker {whose}' if whose else ''}; the last finite train_loss was "
        f"{last_loss}; use a learning_rate below {config.learning_rate}",
        number,
    )


def check_losses(
    losses: Sequence[np.ndarray],
    means: Sequence[float],
    first: int,
    config: Config,
    last_loss: float | None,
) -> None:
    """Raises if the loss of a round is not finite.

    Args:
      losses: losses of consecutive rounds, by worker and local step.
      means: mean loss of each round.
      first: number of the first of these rounds.
      config: options of the run.
      last_loss: mean loss of the round before.
    """
    for number, (loss, mean) in enumerate(zip(losses, means, strict=True), first):
        if not math.isfinite(mean):
            workers = np.flatnonzero(~np.isfinite(loss).all(axis=1)).tolist()
            raise diverged("train_loss", mean, number, config, last_loss, workers)
        last_loss = mean


def check_state_finite(
    state: WorkerState,
    number: int,
    config: Config,
    last_loss: float | None,
    mesh: Mesh | None,
) -> None:
    """Raises if a number in the state of a worker is not finite."""
    if not not_finite(state, mesh):
        return
    for name, part in state._asdict().items():
        workers = not_finite(part, mesh) if jax.tree.leaves(part) else []
        if workers:
            raise diverged(name, "nan or inf", number, config, last_loss, workers)


def not_finite(tree: ArrayTree, mesh: Mesh | None) -> list[int]:
    """Lists the workers that have a number that is not finite.

    >>> import jax.numpy as jnp
    >>> not_finite({"w": jnp.array([[0.0, 1.0], [jnp.nan, 0.0]])}, mesh=None)
    [1]
    """
    return np.flatnonzero(to_host(_flags(tree, mesh))).tolist()


@functools.partial(jax.jit, static_argnames="mesh")
def _flags(tree: ArrayTree, mesh: Mesh | None) -> Bool[Array, " workers"]:
    def worker_flag(own: ArrayTree) -> Bool[Array, ""]:
        floats = [
            x for x in jax.tree.leaves(own) if jnp.issubdtype(x.dtype, jnp.inexact)
        ]
        return ~jnp.all(jnp.array([jnp.all(jnp.isfinite(x)) for x in floats]))

    return on_workers(worker_flag, mesh)(tree)
