"""Reduction: how the messages of all workers become one.

A strategy says what a worker sends, its message, and when that is known. A reduction
says how the messages of all workers become their mean, and may remember something of
what it sent:

    init        message -> state           () or trees like the message
    reduce      message, state -> mean, state
    exchange    shards -> shards           makes the same mean in two steps, or None
    payload     message -> bytes           what a worker hands to the network
    is_lossless                            whether numbers arrive as they are

`reduce` treats every element by itself or in small blocks, so a message may be cut, and
its state with it, and the fragments be reduced one by one.
"""

from collections.abc import Callable, Hashable
from typing import NamedTuple, Protocol, runtime_checkable

from olsgd_jax.types import ArrayTree, Message, ReductionState
from olsgd_jax.workers.axis import WORKERS


@runtime_checkable
class Reduce(Protocol):
    """Makes the mean of all workers' messages; code of one worker."""

    def __call__(
        self,
        message: Message,
        state: ReductionState,
        axis_name: Hashable = WORKERS,
        hold: Callable[[ArrayTree], ArrayTree] | None = None,
    ) -> tuple[Message, ReductionState]:
        """Reduces one message.

        Args:
          message: this worker's arrays.
          state: what `init`, or the last call, gave for this message.
          axis_name: the mapped axis, or axes, along which the workers lie.
          hold: takes what has arrived and gives it back, but not before something
            else is there. Arrays are then sent as they are, and what remains to be
            computed of the mean comes after it.
        """
        ...


@runtime_checkable
class Exchange(Protocol):
    """Hands shard j of every array to worker j; code of one worker."""

    def __call__(self, shards: ArrayTree, axis_name: str = WORKERS) -> ArrayTree:
        """Gives what arrives: in shard i, what worker i has sent."""
        ...


class Reduction(NamedTuple):
    """How messages become a mean. Built by functions such as `exact`.

    >>> import jax, jax.numpy as jnp
    >>> from olsgd_jax import exact
    >>> reduction = exact()
    >>> def worker(message):
    ...     return reduction.reduce(message, reduction.init(message))
    >>> jax.vmap(worker, axis_name="workers")(jnp.array([1.0, 3.0]))
    (Array([2., 2.], dtype=float32), ())
    """

    name: str
    init: Callable[[Message], ReductionState]
    reduce: Reduce
    payload: Callable[[Message], int]
    # Otherwise the number of workers present is not part of the message.
    is_lossless: bool = False
    # For a mean that is the sum, over workers, of messages divided by their number. Its
    # shards can be added up where they arrive: devices that cannot send and add at the
    # same time make the mean of two exchanges.
    exchange: Exchange | None = None


def check_reduction(reduction: object) -> None:
    """Raises unless `reduction` is one that was built.

    >>> check_reduction("exact")
    Traceback (most recent call last):
    TypeError: reduction must be a built one, got 'exact'; pass exact()
    """
    if isinstance(reduction, Reduction):
        return
    name = getattr(reduction, "__name__", None)
    got, fix = f"{reduction!r:.60}", "pass exact()"
    if name is not None:
        got, fix = f"the function {name}", f"call it, as in {name}()"
    raise TypeError(f"reduction must be a built one, got {got}; {fix}")
