"""Reductions that send a message in fewer bits, with error feedback."""

import functools
from collections.abc import Callable, Hashable

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Array, Float

from olsgd_jax._checks import check_number
from olsgd_jax._vectors import at_least_float32, from_vectors, to_vectors
from olsgd_jax.reductions.base import Reduction
from olsgd_jax.reductions.codec import Codec
from olsgd_jax.reductions.shards import send_shards
from olsgd_jax.types import ArrayTree, Message, ReductionState
from olsgd_jax.workers.axis import WORKERS, shares_slot, worker_axes

MOST_ADDED_SINGLY = 32  # shards


def compressed(name: str, codec: Codec, payload: Callable[[Message], int]) -> Reduction:
    """Builds the mean of messages that a codec writes for the network.

    The messages are added up in float32, or in their own dtype if it is wider; see
    `shards` for the two exchanges, and for what becomes of what the codec loses.

    Args:
      name: name of the reduction.
      codec: how shards of a message are written.
      payload: message -> number of bytes that a worker sends.
    """
    if isinstance(codec.error_feedback, bool):
        codec = codec._replace(error_feedback=float(codec.error_feedback))
    check_number("error_feedback", codec.error_feedback, 0, 1, "[]")

    def reduce(
        message: Message,
        state: ReductionState,
        axis_name: Hashable = WORKERS,
        hold: Callable[[ArrayTree], ArrayTree] | None = None,
    ) -> tuple[Message, ReductionState]:
        m = lax.axis_size(worker_axes(axis_name))
        whole = jax.tree.map(at_least_float32, message)
        for error in state:
            whole = jax.tree.map(lambda x, e: x + e.astype(x.dtype), whole, error)
        vectors = to_vectors(whole)
        shards = jax.tree.map(lambda x: _split(x, m, codec.block), vectors)

        def decode(code: ArrayTree, like: ArrayTree) -> ArrayTree:
            return jax.tree.map(
                lambda x, vector: _zero_fill(x, -(-vector.size // m)),
                codec.decode(code, like),
                vectors,
            )

        filled = codec._replace(decode=decode)
        mean, lost = _two_exchanges(filled, shards, axis_name)
        mean, lost = (
            from_vectors(jax.tree.map(_joined, x, vectors), like=whole)
            for x in (mean, lost)
        )
        mean, lost = (optax.tree.cast_like(x, message) for x in (mean, lost))
        mean = mean if hold is None else hold(mean)
        return mean, (lost,) if codec.error_feedback else ()

    def init(message: Message) -> ReductionState:
        return (optax.tree.zeros_like(message),) if codec.error_feedback else ()

    return Reduction(name, init, reduce, payload, codec=codec)


def _two_exchanges(
    codec: Codec, shards: ArrayTree, axis_name: Hashable
) -> tuple[ArrayTree, ArrayTree]:
    """Gives the shards of the mean, and what was lost."""
    axes = worker_axes(axis_name)
    m, place = lax.axis_size(axes), lax.axis_index(axes)

    def own(x: jax.Array) -> jax.Array:
        return lax.dynamic_index_in_dim(x, place, axis=0)

    def put_own(x: jax.Array, new: jax.Array) -> jax.Array:
        return lax.dynamic_update_slice_in_dim(x, new, place, axis=0)

    def with_own(sent: ArrayTree) -> ArrayTree:
        return jax.tree.map(lambda x, y: put_own(x, own(y)), sent, shards)

    # Without the barriers, CPUs would encode again to find out what is lost.
    code = lax.optimization_barrier(codec.encode(shards, *codec.draws))
    sent = codec.decode(code, shards)
    if shares_slot(axis_name):
        # Lanes cannot exchange shards with those of other slots, but add up with them.
        sums = lax.psum(jax.tree.map(lambda x: x / m, with_own(sent)), axes)
        total = jax.tree.map(own, sums)
        shared = codec.decode(codec.encode(total, *codec.draws), total)
        # Worker j alone codes shard j, so that all get what its own draws make of it.
        of_own = jax.tree.map(
            lambda x, y: put_own(jnp.zeros_like(x), y), shards, shared
        )
        mean = lax.psum(of_own, axes)
    else:
        received = with_own(codec.decode(send_shards(code, axes), shards))
        total = jax.tree.map(lambda x: _added_up(x / m), received)
        of_sum = lax.optimization_barrier(codec.encode(total, *codec.draws))
        shared = codec.decode(of_sum, total)
        mean = codec.decode(lax.all_gather(of_sum, axes, tiled=True), shards)
    lost = jax.tree.map(
        lambda x, y, t, s: put_own(x - y, m * (t - s)), shards, sent, total, shared
    )
    return mean, optax.tree.scale(codec.error_feedback, lost)


def _added_up(
    shards: Float[Array, "shards blocks numbers"],
) -> Float[Array, "1 blocks numbers"]:
    """Adds up shards one by one: CPUs take many times as long over the first axis.

    The program would grow with the number of shards, so many are added up at once.
    """
    if len(shards) > MOST_ADDED_SINGLY:
        return jnp.sum(shards, axis=0, keepdims=True)
    return functools.reduce(jnp.add, shards)[None]


def _split(
    x: jax.Array, num_shards: int, block: int
) -> Float[Array, "shards blocks numbers"]:
    """Splits a vector into shards of whole blocks.

    In this shape, what a codec does is a loop over blocks. In any other, CPUs compute
    for every number which block it is in.
    """
    size = -(-x.size // num_shards)
    shards = jnp.pad(x, (0, num_shards * size - x.size)).reshape(num_shards, size)
    return _fill(shards, block)


def _fill(
    shards: Float[Array, "shards size"], block: int
) -> Float[Array, "shards blocks numbers"]:
    filled = jnp.pad(shards, ((0, 0), (0, -shards.shape[1] % block)))
    return filled.reshape(len(shards), -1, block)


def _zero_fill(
    shards: Float[Array, "shards blocks numbers"], size: int
) -> Float[Array, "shards blocks numbers"]:
    """Puts zeros again where `_fill` did: two bits, for example, have no zero."""
    return _fill(shards.reshape(len(shards), -1)[:, :size], shards.shape[-1])


def _joined(
    shards: Float[Array, "shards blocks numbers"], like: jax.Array
) -> Float[Array, " size"]:
    size = -(-like.size // len(shards))
    return shards.reshape(len(shards), -1)[:, :size].ravel()[: like.size]
