"""No communication at all, to measure what communication adds to a round."""

from collections.abc import Callable, Hashable

from olsgd_jax.reductions.base import Reduction
from olsgd_jax.types import ArrayTree, Message, ReductionState
from olsgd_jax.workers.axis import WORKERS


def send_nothing() -> Reduction:
    """Builds a reduction that returns every worker's own message.

    >>> import jax, jax.numpy as jnp
    >>> from olsgd_jax import send_nothing
    >>> def worker(message):
    ...     return send_nothing().reduce(message, ())[0]
    >>> jax.vmap(worker, axis_name="workers")(jnp.array([1.0, 2.0, 6.0]))
    Array([1., 2., 6.], dtype=float32)
    """
    return Reduction(
        name="send_nothing",
        init=lambda message: (),
        reduce=_keep,
        payload=lambda message: 0,
        is_lossless=True,
    )


def _keep(
    message: Message,
    state: ReductionState,
    axis_name: Hashable = WORKERS,
    hold: Callable[[ArrayTree], ArrayTree] | None = None,
) -> tuple[Message, ReductionState]:
    del axis_name
    return message if hold is None else hold(message), state
