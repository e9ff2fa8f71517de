"""Reduction: how the messages of all workers become a mean.

A strategy says what a worker sends, its message, and when that is known. A reduction
says how the messages of all workers become their mean. It may keep state from one
message to the next:

    init        message -> state           () or trees like the message
    reduce      message, state -> mean, state
    codec       shards <-> what is sent    makes the same mean in two steps, or None
    two_means                              makes it of two small means, or None
    payload     message -> bytes           number of bytes that a worker sends
    is_lossless                            whether numbers arrive unchanged
    part        message -> what is sent    all numbers, or some; the others stay as they
                                           are on every worker
    draw        draws -> reduction         the reduction of one message, if it rounds or
                                           chooses at random; None if not

`reduce` works on single elements or small blocks, so a message and its state can be cut
into fragments that are reduced one by one. The state is what has not been sent yet:
it is added to the next message.

A reduction that needs whole arrays is made of two exact means of small messages, which
can be cut in the place of its own (see `two_means`). Its state may have any form, and
`shared` names the fields of it that are the same on all workers.
"""

from collections.abc import Callable, Hashable
from typing import NamedTuple, Protocol, runtime_checkable

import jax
from jax import lax
from jaxtyping import Array, Int, Key

from olsgd_jax.reductions.codec import Codec
from olsgd_jax.reductions.two_means import TwoMeans
from olsgd_jax.types import ArrayTree, Message, ReductionState
from olsgd_jax.workers.axis import WORKERS, worker_axes


@runtime_checkable
class Reduce(Protocol):
    """Computes the mean of all workers' messages; runs on each worker."""

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
          state: the state from `init`, or from the last call for this message.
          axis_name: name, or names, of the worker axis.
          hold: delays the arrays that have arrived until some other value is computed.
            If it is given, arrays are sent as they are, and the rest of the mean is
            computed afterwards.
        """
        ...


class Part(NamedTuple):
    """The numbers of a message that are sent."""

    take: Callable[[Message], Message]  # message -> the numbers that are sent
    # their mean, the worker's own message -> the message with the mean in their places
    put: Callable[[Message, Message], Message]


ALL = Part(take=lambda message: message, put=lambda mean, own: mean)
"""Sends whole messages."""


class Draws(NamedTuple):
    """Keys of the random numbers of one message."""

    shared: Key[Array, "*workers"]  # the same on all workers
    own: Key[Array, "*workers"]  # a worker's own


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
    # If not, the number of workers present is sent apart from the message.
    is_lossless: bool = False
    # How shards of the message are written, if they can be added up where they arrive.
    # The mean then takes two exchanges, for devices that cannot send and add at once.
    codec: Codec | None = None
    # Which numbers are sent. The two exchanges, and whatever else cuts messages, see
    # only these.
    part: Part = ALL
    draw: "Callable[[Draws], Reduction] | None" = None
    # How the mean is made of two exact means, if messages cannot be cut.
    two_means: TwoMeans | None = None
    # Fields of the state that are the same on all workers; all others are a worker's.
    shared: tuple[str, ...] = ()

    @property
    def is_compressed(self) -> bool:
        """Whether a codec writes messages in fewer bits, for two exchanges."""
        return self.codec is not None and not self.is_lossless

    @property
    def is_in_two(self) -> bool:
        """Whether a mean takes two collectives in turn, on every platform."""
        return self.is_compressed or self.two_means is not None

    def take_shared(
        self, state: ReductionState, source: ReductionState
    ) -> ReductionState:
        """Gives the state with the shared fields of another; () stays as it is."""
        if not (self.shared and state):
            return state
        fields = {name: getattr(source, name) for name in self.shared}
        return state._replace(**fields)


def of_message(
    reduction: Reduction, number: Int[Array, ""] | int, axis_name: Hashable = WORKERS
) -> Reduction:
    """Gives the reduction of one message; runs on each worker.

    Random numbers follow from the number of the message alone, so a run that resumes
    draws those that it would have drawn.

    Args:
      reduction: a reduction.
      number: how many messages there were before; the same on all workers.
      axis_name: name, or names, of the worker axis.

    >>> from olsgd_jax import exact
    >>> of_message(exact(), number=3).name
    'exact'
    """
    if reduction.draw is None:
        return reduction
    shared = jax.random.fold_in(jax.random.key(0), number)
    own = jax.random.fold_in(shared, lax.axis_index(worker_axes(axis_name)))
    return reduction.draw(Draws(shared, own))


def check_reduction(reduction: object) -> None:
    """Raises unless `reduction` is a `Reduction` object.

    >>> check_reduction("exact")
    Traceback (most recent call last):
    TypeError: reduction must be a built one, got 'exact'; pass one, as in int8()
    """
    if isinstance(reduction, Reduction):
        return
    name = getattr(reduction, "__name__", None)
    got, fix = f"{reduction!r:.60}", "pass one, as in int8()"
    if name is not None:
        got, fix = f"the function {name}", f"call it, as in {name}()"
    raise TypeError(f"reduction must be a built one, got {got}; {fix}")
