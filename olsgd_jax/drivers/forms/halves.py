"""Two means in turn (`TwoMeans`), each sent by some of a round's local steps.

Both messages are split into parts of one shape. The steps send them as they send the
fragments of an exact mean, over s steps each (see `fragments` and `exchange`):

    step 0 … b − 1    send the b / s parts of the first message
    step b − 1        then computes the second message from the mean that has arrived
    step b … τ − 1    send the parts of the second message

b is chosen so that the parts are as small as possible. A round that is too short for
both messages computes the two means one after the other.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Int

from olsgd_jax._vectors import from_vectors, to_vectors
from olsgd_jax.drivers.forms.fragments import run_if
from olsgd_jax.reductions.two_means import TwoMeans
from olsgd_jax.round.local_steps import Carry, Step, Steps, WorkerState
from olsgd_jax.round.participation import Outgoing
from olsgd_jax.types import ArrayTree

Parts = dict[str, jax.Array]
"""For each dtype, an array whose leading axis counts the parts of both messages."""


class Halves(NamedTuple):
    """How two messages are split into parts."""

    two_means: TwoMeans
    first: ArrayTree  # shapes of the first message
    second: ArrayTree  # shapes of the second message
    num_first: int  # number of parts of the first message; all others are the second's
    num_parts: int
    shapes: dict[str, tuple[int, ...]]  # of a part, for each dtype


def plan_halves(
    two_means: TwoMeans,
    outgoing: Outgoing,
    num_parts: int,
    shape_of: Callable[[int], tuple[int, ...]],
) -> Halves:
    """Decides how two messages are split.

    Args:
      two_means: makes the two messages.
      outgoing: the message and the reduction's state; shapes suffice.
      num_parts: number of parts of both messages together, at least 2.
      shape_of: number of elements -> shape of a part that can hold them.
    """
    first = jax.eval_shape(two_means.first, *outgoing)
    _, second = jax.eval_shape(two_means.second, *outgoing, first)
    sizes = [
        {dtype: x.size for dtype, x in jax.eval_shape(to_vectors, message).items()}
        for message in (first, second)
    ]

    def part_size(num_first: int, *sizes: int) -> int:
        nums = num_first, num_parts - num_first
        return max(-(-size // num) for size, num in zip(sizes, nums, strict=True))

    totals = [sum(x.values()) for x in sizes]
    num_first = min(range(1, num_parts), key=lambda num: part_size(num, *totals))
    shapes = {
        dtype: shape_of(part_size(num_first, *(x.get(dtype, 0) for x in sizes)))
        for dtype in sorted(sizes[0] | sizes[1])
    }
    return Halves(two_means, first, second, num_first, num_parts, shapes)


def empty_parts(halves: Halves) -> Parts:
    """Gives parts of zeros."""
    return {
        dtype: jnp.zeros((halves.num_parts, *shape), dtype)
        for dtype, shape in halves.shapes.items()
    }


def put_first(halves: Halves, outgoing: Outgoing, parts: Parts) -> Parts:
    """Puts the first message into the parts."""
    return _put(parts, halves.two_means.first(*outgoing), at=0)


def put_second(
    halves: Halves, outgoing: Outgoing, parts: Parts, is_time: Bool[Array, ""]
) -> Parts:
    """Puts the second message into the parts, if the first mean has just arrived.

    What the worker makes of the first mean takes its place.
    """

    def put(parts: Parts) -> tuple[Parts]:
        mean = _take(parts, halves.first, at=0)
        made, second = halves.two_means.second(*outgoing, mean)
        return (_put(_put(parts, made, at=0), second, at=halves.num_first),)

    return run_if(is_time, put, parts)[0]


def finish_halves(halves: Halves, outgoing: Outgoing, parts: Parts) -> Outgoing:
    """Gives the reduction's result from the parts, once both means have arrived."""
    made = _take(parts, halves.first, at=0)
    mean = _take(parts, halves.second, at=halves.num_first)
    return halves.two_means.finish(*outgoing, made, mean)


def round_in_halves(
    halves: Halves,
    outgoing: Outgoing,
    steps: Callable[..., Steps],
    send: Carry,
    steps_per_part: int = 1,
) -> tuple[Outgoing, Steps]:
    """Runs the local steps of a round while they send the parts.

    Args:
      halves: how the messages are split.
      outgoing: the message and the reduction's state.
      steps: runs the local steps.
      send: computes the exact mean of part k // `steps_per_part` during step k.
      steps_per_part: number of steps that send a part.

    Returns:
      The reduction's result, and that of the steps.
    """
    last_of_first = halves.num_first * steps_per_part - 1

    def carry(parts: Parts, k: Int[Array, ""], step: Step, state: WorkerState) -> tuple:
        parts, result = send(parts, k, step, state)
        return put_second(halves, outgoing, parts, k == last_of_first), result

    first = put_first(halves, outgoing, empty_parts(halves))
    done = steps(first, carry=carry)
    return finish_halves(halves, outgoing, done.sent), done


def _put(parts: Parts, message: ArrayTree, at: int) -> Parts:
    """Writes a message into the parts from number `at` on."""

    def put(x: jax.Array, vector: jax.Array) -> jax.Array:
        first = at * math.prod(x.shape[1:])
        return lax.dynamic_update_slice(x.ravel(), vector, (first,)).reshape(x.shape)

    vectors = to_vectors(message)
    return parts | {dtype: put(parts[dtype], x) for dtype, x in vectors.items()}


def _take(parts: Parts, like: ArrayTree, at: int) -> ArrayTree:
    """Reads a message from the parts from number `at` on; `like` gives the shapes."""
    return from_vectors({dtype: x[at:].ravel() for dtype, x in parts.items()}, like)
