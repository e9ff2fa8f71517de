"""The mean in a round that some workers miss: over the workers that are present.

P is the set of workers that are present, p of m. With xᵢ a start, an end or a gradient,

    mean over P = m / p · meanᵢ (xᵢ if i in P else 0)

and p = meanᵢ (m if i in P else 0). The count p is sent with the arrays, or on its own
if the reduction would round it. An absent worker's arrays are replaced by zeros, not
multiplied by zero, so a NaN in them does not spread. If all workers are present, m / p
is exactly 1.
"""

from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.core import Tracer
from jaxtyping import Array, Float

from olsgd_jax.reductions.base import Reduction
from olsgd_jax.reductions.exact import worker_mean
from olsgd_jax.types import ArrayTree, Message, Present, ReductionState
from olsgd_jax.workers.axis import worker_count

Outgoing: TypeAlias = tuple[Message, ReductionState]
"""A message and the reduction's state for it; after the reduction, mean and state."""


def of_present(tree: ArrayTree, present: Present) -> ArrayTree:
    """Gives what a worker sends: its arrays, or zeros if it is absent, and its count.

    >>> x, here = jnp.array([3.0, jnp.nan]), jnp.array([True, False])
    >>> sent = jax.vmap(of_present, axis_name="workers")(x, here)
    >>> sent[0].tolist(), sent[1].tolist()
    ([3.0, 0.0], [[2.0, 2.0], [0.0, 0.0]])
    """
    own = choose(present, tree, jax.tree.map(jnp.zeros_like, tree))
    # In the dtype of an array, to join its flat vector; 16-bit floats cannot count far.
    wide = [x.dtype for x in jax.tree.leaves(tree) if x.dtype.itemsize >= 4]
    dtype = wide[0] if wide else jnp.float32
    count = jnp.where(present, worker_count(), 0).astype(dtype)
    # Sent twice: TPUs do not combine a single number with the arrays.
    return own, jnp.stack([count, count])


def over_present(sent: ArrayTree) -> tuple[ArrayTree, Float[Array, ""]]:
    """Turns a mean over all workers into the mean over those present.

    Args:
      sent: the mean over all workers of the result of `of_present`.

    Returns:
      The mean over the workers that are present, or zeros if none is; and p.

    >>> def worker(x, present):
    ...     return over_present(worker_mean(of_present(x, present)))
    >>> from olsgd_jax import worker_mean
    >>> here = jnp.array([True, False, True])
    >>> jax.vmap(worker, axis_name="workers")(jnp.array([1.0, jnp.nan, 2.0]), here)
    (Array([1.5, 1.5, 1.5], dtype=float32), Array([2., 2., 2.], dtype=float32))
    """
    mean, count = sent
    num_present = jnp.round(count[0])

    def scale(x: jax.Array) -> jax.Array:
        # Rounded to 16 bits, m / p could shrink the models a little in every round.
        wide = x.astype(jnp.float32) if x.dtype.itemsize < 4 else x
        at_least_one = jnp.maximum(num_present, 1).astype(wide.dtype)
        return (wide * (worker_count() / at_least_one)).astype(x.dtype)

    return jax.tree.map(scale, mean), num_present


def outgoing(
    reduction: Reduction,
    message: Message,
    state: ReductionState,
    present: Present | None,
) -> Outgoing:
    """Gives what a worker hands to a reduction; present is None if all workers are.

    >>> from olsgd_jax import exact
    >>> outgoing(exact(), jnp.ones(1), (), present=None)
    (Array([1.], dtype=float32), ())
    """
    if present is None:
        return message, state
    # An absent worker sends nothing, not even the error it held back earlier.
    nothing = reduction.take_shared(jax.tree.map(jnp.zeros_like, state), state)
    state = choose(present, state, nothing)
    own, count = of_present(message, present)
    if not reduction.is_lossless:
        return own, state
    return (own, count), tuple((x, jnp.zeros_like(count)) for x in state)


def arrived(
    reduction: Reduction,
    sent: Outgoing,
    before: ReductionState,
    present: Present | None,
) -> tuple[Message, ReductionState, Float[Array, ""] | None]:
    """Unpacks a reduction's result: mean, state, and p (None if all are present).

    An absent worker sent nothing of the state that it had `before`, and keeps it. It
    still adds up its shard of the mean, and what that loses is added to the state. It
    takes the new value of what workers share.

    >>> from olsgd_jax import exact
    >>> arrived(exact(), (jnp.ones(1), ()), (), present=None)
    (Array([1.], dtype=float32), (), None)
    """
    mean, state = sent
    if present is None:
        return mean, state, None
    if reduction.is_lossless:
        state = tuple(own for own, _ in state)
    else:
        _, count = of_present((), present)
        mean = mean, worker_mean(count)
    mean, num_present = over_present(mean)
    kept = reduction.take_shared(optax.tree.add(before, state), state)
    return mean, choose(present, state, kept), num_present


def unless_all(present: Present | None) -> Present | None:
    """Gives None if all workers are known to be present.

    The round then runs the same program as any other. A program with a mask computes
    the same numbers, but the compiler may fuse its multiplications and additions
    differently, which changes the last bits.

    >>> unless_all(jnp.array([True, True])) is None
    True
    """
    if present is None or isinstance(present, Tracer):
        return present
    whole = np.asarray(present)
    return None if whole.all() else whole


def choose(condition: Present, new: ArrayTree, old: ArrayTree) -> ArrayTree:
    """Takes the new tree where a condition holds, else the old one.

    >>> choose(jnp.array(False), jnp.array(2), jnp.array(1)).item()
    1
    """
    return jax.tree.map(lambda x, y: jnp.where(condition, x, y), new, old)
