"""The mean of coded shards, in two exchanges.

A message is split into one shard per worker. With C(x) what a codec makes of x,

    add      worker i sends C(shardⱼ + eᵢⱼ) to worker j, which adds up what arrives:
             sⱼ = Σᵢ C(shardⱼ + eᵢⱼ) / m
    share    worker j sends C(sⱼ) to every worker: shardⱼ of the mean

What the codec loses is kept, and sent with the next message (error feedback):

    eᵢⱼ ← shardⱼ + eᵢⱼ − C(shardⱼ + eᵢⱼ)        for j ≠ i
    eⱼⱼ ← m (sⱼ − C(sⱼ))

A worker's own shard does not cross the network, so worker j adds it as it is, and its
place in the error is free for what the sum loses. Then the mean over the workers of
messages and old errors is, exactly, the mean that arrives and the mean of new errors.
With a decay β in [0, 1], β e is kept instead of e.
Every worker decodes the same C(sⱼ), so the mean has the same bits on all of them.
"""

from collections.abc import Callable, Hashable

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Array, Bool

from olsgd_jax._vectors import at_least_float32
from olsgd_jax.reductions.codec import AS_IT_IS, Codec
from olsgd_jax.types import ArrayTree
from olsgd_jax.workers.axis import WORKERS

Mapped = Callable[[Callable], Callable]
"""Makes a function of a worker's shards run on each of its devices."""


def start_exchange(
    codec: Codec,
    shards: ArrayTree,
    errors: tuple[ArrayTree, ...],
    adds_up: Bool[Array, ""],
    axis_name: str = WORKERS,
    on_devices: Mapped = lambda fn: fn,
) -> tuple[ArrayTree, Callable[[ArrayTree], tuple[ArrayTree, tuple]]]:
    """Starts one of the two exchanges, both of which are the same program.

    Args:
      codec: how shards are written.
      shards: arrays with a leading axis of m shards; in the second exchange, m copies
        of the sum that this worker made.
      errors: what was lost before, like the shards; () without error feedback.
      adds_up: whether this is the first exchange.
      axis_name: name of the worker axis.
      on_devices: runs a function of shards on every device of a worker.

    Returns:
      What is in transit, and a function that takes it once it has arrived, and gives
      the new shards (copies of the sum, or the whole mean) and the new errors.
    """
    m = lax.axis_size(axis_name)

    def is_own(x: jax.Array) -> jax.Array:
        places = lax.broadcasted_iota(jnp.int32, (m, *[1] * (x.ndim - 1)), 0)
        return places == lax.axis_index(axis_name)

    def where(condition: jax.Array, new: ArrayTree, old: ArrayTree) -> ArrayTree:
        return jax.tree.map(lambda x, y: jnp.where(condition, x, y), new, old)

    like, is_coded = shards, codec is not AS_IT_IS
    if is_coded:
        shards = jax.tree.map(at_least_float32, shards)
    for error in errors:
        plus = jax.tree.map(lambda x, e: x + e.astype(x.dtype), shards, error)
        shards = where(adds_up, plus, shards)
    code = on_devices(codec.encode)(shards, *codec.draws)

    def finish(received: ArrayTree) -> tuple[ArrayTree, tuple]:
        decode = on_devices(codec.decode)
        received = decode(received, shards)

        def arrived(x: jax.Array, own: jax.Array) -> jax.Array:
            if is_coded:
                x = jnp.where(adds_up & is_own(x), own, x)
            # Divided first, as in `exact`.
            total = jnp.sum(x / m, axis=0, keepdims=True)
            return jnp.where(adds_up, jnp.broadcast_to(total, x.shape), x)

        def kept(own: jax.Array, sent: jax.Array, error: jax.Array) -> jax.Array:
            lost = (codec.error_feedback * (own - sent)).astype(error.dtype)
            own_place = is_own(own)
            of_others = jnp.where(own_place, jnp.zeros_like(lost), lost)
            of_sum = jnp.where(own_place, m * lost, error)
            return jnp.where(adds_up, of_others, of_sum)

        new = optax.tree.cast_like(jax.tree.map(arrived, received, shards), like)
        if not errors:
            return new, ()
        sent = decode(code, shards)
        return new, (jax.tree.map(kept, shards, sent, *errors),)

    return on_devices(lambda x: send_shards(x, axis_name))(code), finish


def send_shards(shards: ArrayTree, axis_name: Hashable = WORKERS) -> ArrayTree:
    """Sends shard j of every array to worker j; shard i that arrives is worker i's.

    >>> x = jnp.arange(4).reshape(2, 2)
    >>> jax.vmap(send_shards, axis_name="workers")(x).tolist()
    [[0, 2], [1, 3]]
    """
    return jax.tree.map(
        lambda x: lax.all_to_all(x, axis_name, split_axis=0, concat_axis=0, tiled=True),
        shards,
    )
