"""TwoMeans: a mean that is made of two exact means of small messages, in turn.

    first     message, state -> the message that is averaged first
    second    message, state, its mean -> what every worker makes of that mean, and the
              message that is averaged second
    finish    message, state, what it made, the second mean -> mean, state

What a worker makes of the first mean has its shapes and dtypes. None of the three
functions communicates, so both messages may be sent in any way, at any time of a round.
"""

from collections.abc import Callable
from typing import NamedTuple

from olsgd_jax.types import ArrayTree, Message, ReductionState


class TwoMeans(NamedTuple):
    """How a mean is made of two exact means.

    >>> import jax, jax.numpy as jnp
    >>> from olsgd_jax import worker_mean
    >>> variance = TwoMeans(
    ...     first=lambda message, state: message,
    ...     second=lambda message, state, mean: (mean, (message - mean) ** 2),
    ...     finish=lambda message, state, mean, variance: (variance, state),
    ... )
    >>> def worker(message):
    ...     mean = worker_mean(variance.first(message, ()))
    ...     mean, second = variance.second(message, (), mean)
    ...     return variance.finish(message, (), mean, worker_mean(second))[0]
    >>> jax.vmap(worker, axis_name="workers")(jnp.array([1.0, 3.0]))
    Array([1., 1.], dtype=float32)
    """

    first: Callable[[Message, ReductionState], ArrayTree]
    second: Callable[[Message, ReductionState, ArrayTree], tuple[ArrayTree, ArrayTree]]
    finish: Callable[
        [Message, ReductionState, ArrayTree, ArrayTree], tuple[Message, ReductionState]
    ]
