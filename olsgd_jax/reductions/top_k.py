"""Only the largest numbers of every block, in bfloat16, each with its place.

A block of 256 numbers is sent as the k that are largest in absolute value, and where
they stand in it; all others arrive as 0, and error feedback sends them later. A place
in a block of 256 takes one byte, a number two.

Reference: A. F. Aji, K. Heafield, "Sparse Communication for Distributed Gradient
Descent", EMNLP 2017, arXiv:1704.05021.
"""

import functools

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, UInt8

from olsgd_jax._checks import check_number
from olsgd_jax._vectors import at_least_float32
from olsgd_jax.reductions.base import Reduction
from olsgd_jax.reductions.codec import Codec
from olsgd_jax.reductions.compressed import compressed
from olsgd_jax.types import ArrayTree, Message

BLOCK = 256
"""Numbers of which the largest are sent: as many as a byte can number."""


def top_k(fraction: float = 1 / 32, error_feedback: float = 1.0) -> Reduction:
    """Builds a mean of every block's largest numbers: 0.02 of float32's bytes.

    Args:
      fraction: share of the numbers that is sent, a multiple of 1/256.
      error_feedback: share of what is not sent that is added to the next message, in
        [0, 1]; 0 for none.

    >>> import jax, jax.numpy as jnp
    >>> from olsgd_jax import top_k
    >>> reduction = top_k(fraction=1 / 256)
    >>> def worker(message):
    ...     return reduction.reduce(message, reduction.init(message))[0]
    >>> messages = jnp.array([[1.0, 8.0, 2.0], [1.0, 4.0, 2.0]])
    >>> jax.vmap(worker, axis_name="workers")(messages)[0].tolist()
    [0.0, 6.0, 2.0]
    """
    check_number("fraction", fraction, 0, 1, "(]")
    k = round(fraction * BLOCK)
    if k != fraction * BLOCK:
        near = max(k, 1)
        raise ValueError(
            f"fraction must be a multiple of 1/{BLOCK}, got {fraction:g}; "
            f"pass {near}/{BLOCK} = {near / BLOCK:g}"
        )

    def payload(message: Message) -> int:
        blocks = sum(-(-x.size // BLOCK) for x in jax.tree.leaves(message))
        return blocks * k * 3

    codec = Codec(
        functools.partial(_encode, k=k),
        functools.partial(_decode, k=k),
        error_feedback,
        BLOCK,
    )
    return compressed("top_k", codec, payload)


def _encode(shards: ArrayTree, k: int) -> ArrayTree:
    def encode(x: jax.Array) -> UInt8[Array, "shards rows blocks"]:
        blocks = _to_blocks(x)
        _, places = lax.top_k(jnp.abs(blocks), k)
        largest = jnp.take_along_axis(blocks, places, axis=-1).astype(jnp.bfloat16)
        bits = lax.bitcast_convert_type(largest, jnp.uint16)
        # In one array: a device may run only one collective at a time.
        columns = [x.astype(jnp.uint8) for x in (places, bits // BLOCK, bits % BLOCK)]
        return jnp.concatenate(columns, axis=-1).swapaxes(1, 2)

    return jax.tree.map(encode, shards)


def _decode(code: ArrayTree, like: ArrayTree, k: int) -> ArrayTree:
    def decode(
        code: UInt8[Array, "shards rows blocks"], like: jax.Array
    ) -> Float[Array, "shards ..."]:
        places, high, low = jnp.split(code, 3, axis=1)
        bits = high.astype(jnp.uint16) * BLOCK + low.astype(jnp.uint16)
        numbers = lax.bitcast_convert_type(bits, jnp.bfloat16).astype(like.dtype)
        # Compared with every place, not scattered, which TPUs do one by one.
        every_place = jnp.arange(BLOCK, dtype=jnp.uint8)
        blocks = jnp.zeros((len(code), code.shape[-1], BLOCK), like.dtype)
        for i in range(k):
            is_there = places[:, i, :, None] == every_place
            blocks = jnp.where(is_there, numbers[:, i, :, None], blocks)
        # Else the loop above would divide, to find out where each number stands.
        shards = lax.optimization_barrier(blocks).reshape(len(code), -1)
        return shards[:, : like[0].size].reshape(like.shape)

    return jax.tree.map(decode, code, like)


def _to_blocks(x: jax.Array) -> Float[Array, "shards blocks numbers"]:
    shards = at_least_float32(x).reshape(len(x), -1)
    padding = -shards.shape[1] % BLOCK
    return jnp.pad(shards, ((0, 0), (0, padding))).reshape(len(x), -1, BLOCK)
