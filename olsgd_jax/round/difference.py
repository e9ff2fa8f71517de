"""Models as differences from a model that all workers know.

A reduction that rounds loses in proportion to what it is given, and models change
little in a round. So models are sent as differences from a reference r:

    dᵢ   ← xᵢ − r                  what worker i sends
    mean ← r + meanᵢ dᵢ
    r    ← mean                    the next reference

All workers start from the same model, which is the first reference, and every worker
gets the same mean, so r is the same on all of them. A worker that misses a round still
gets that round's mean, so its reference is never old. A lossless reduction needs no
reference and keeps none.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from olsgd_jax.reductions.base import Reduction
from olsgd_jax.types import Message, ReductionState


class Difference(NamedTuple):
    """What a reduction that rounds keeps for models."""

    reference: Message  # r; the same on all workers
    own: ReductionState  # the reduction's state for the differences


def init_difference(
    reduction: Reduction, models: Message, own: ReductionState
) -> ReductionState | Difference:
    """Gives the first state for models that all workers share.

    >>> from olsgd_jax import bfloat16, exact
    >>> init_difference(exact(), jnp.ones(1), own=())
    ()
    >>> init_difference(bfloat16(), jnp.ones(1), own=()).reference
    Array([1.], dtype=float32)
    """
    if reduction.is_lossless:
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


def to_send(models: Message, kept: ReductionState | Difference) -> Message:
    """Gives what a worker sends for its models.

    >>> to_send(jnp.full(1, 3.0), Difference(jnp.ones(1), own=()))
    Array([2.], dtype=float32)
    """
    if not isinstance(kept, Difference):
        return models
    return optax.tree.sub(models, kept.reference)


def from_mean(
    mean: Message, own: ReductionState, kept: ReductionState | Difference
) -> tuple[Message, ReductionState | Difference]:
    """Gives the mean of the models, and the next state, from the mean that arrived.

    Args:
      mean: the mean of what the workers sent.
      own: the reduction's state afterwards.
      kept: the state before.

    >>> from_mean(jnp.full(1, 2.0), (), Difference(jnp.ones(1), own=()))[0]
    Array([3.], dtype=float32)
    """
    if not isinstance(kept, Difference):
        return mean, own
    mean = optax.tree.add(kept.reference, mean)
    return mean, Difference(mean, own)
