"""Models as differences from a model that all workers know.

A reduction that rounds loses in proportion to what it is given, and models change
little in a round. So models are sent as differences from a reference r:

    dᵢ   ← xᵢ − r                  what worker i sends
    mean ← r + meanᵢ dᵢ
    r    ← mean                    the next reference

All workers start from the same model, which is the first reference, and every worker
gets the same mean, so r is the same on all of them. A worker that misses a round still
gets that round's mean, so its reference is never old. A lossless reduction needs no
reference and keeps none, nor does a message that is a difference already, such as the
progress of a round.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from olsgd_jax.reductions.base import Reduction
from olsgd_jax.types import Message, ReductionState


class Difference(NamedTuple):
    """What a reduction that rounds keeps for models."""

    # r; the same on all workers; None in the place of a part that is sent as it is
    reference: Message
    own: ReductionState  # the reduction's state for the differences


def init_difference(
    reduction: Reduction, models: Message, own: ReductionState
) -> ReductionState | Difference:
    """Gives the first state for models that all workers share.

    Args:
      reduction: how messages become a mean.
      models: a message, with None in the place of a part that is no model.
      own: the reduction's own state.

    >>> from olsgd_jax import bfloat16, exact
    >>> init_difference(exact(), jnp.ones(1), own=())
    ()
    >>> init_difference(bfloat16(), jnp.ones(1), own=()).reference
    Array([1.], dtype=float32)
    """
    if reduction.is_lossless or not jax.tree.leaves(models):
        return own
    # Copied: a caller may donate models and state, which then must share no buffer.
    return Difference(jax.tree.map(jnp.copy, models), own)


def own_state(kept: ReductionState | Difference) -> ReductionState:
    """Gives the reduction's own state.

    >>> own_state(Difference(jnp.ones(1), own=()))
    ()
    """
    return kept.own if isinstance(kept, Difference) else kept


def with_own(
    kept: ReductionState | Difference, own: ReductionState
) -> ReductionState | Difference:
    """Replaces the reduction's own state.

    >>> with_own(Difference(jnp.ones(1), own=()), own=(jnp.zeros(1),)).own
    (Array([0.], dtype=float32),)
    """
    return kept._replace(own=own) if isinstance(kept, Difference) else own


def to_send(message: Message, kept: ReductionState | Difference) -> Message:
    """Gives what a worker sends for its message.

    >>> to_send(jnp.full(1, 3.0), Difference(jnp.ones(1), own=()))
    Array([2.], dtype=float32)
    """
    if not isinstance(kept, Difference):
        return message
    return _with_reference(lambda x, r: x - r, message, kept.reference)


def from_mean(
    mean: Message, own: ReductionState, kept: ReductionState | Difference
) -> tuple[Message, ReductionState | Difference]:
    """Gives the mean of the messages, and the next state, from the mean that arrived.

    Args:
      mean: the mean of what the workers sent.
      own: the reduction's state afterwards.
      kept: the state before.

    >>> from_mean(jnp.full(1, 2.0), (), Difference(jnp.ones(1), own=()))[0]
    Array([3.], dtype=float32)
    """
    if not isinstance(kept, Difference):
        return mean, own
    mean = _with_reference(lambda x, r: r + x, mean, kept.reference)
    reference = _with_reference(
        lambda x, r: x, mean, kept.reference, rest=lambda x: None
    )
    return mean, Difference(reference, own)


def _with_reference(
    fn: Callable[[jax.Array, jax.Array], jax.Array],
    message: Message,
    reference: Message,
    rest: Callable[[Message], Message | None] = lambda part: part,
) -> Message:
    """Applies `fn` to arrays that have a reference, and `rest` to parts without one."""
    return jax.tree.map(
        lambda r, x: rest(x) if r is None else fn(x, r),
        reference,
        message,
        is_leaf=lambda r: r is None,
    )
