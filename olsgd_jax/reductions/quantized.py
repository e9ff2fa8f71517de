"""Messages in 8, 4 or 2 bits per number, in blocks with a scale of their own.

A block of 128 numbers x is sent as whole numbers q of b bits, and one scale:

    s ← max |x| / t                  t = (2ᵇ − 1) / 2 for 2 bits, else 2ᵇ⁻¹ − 1
    q ← round(x / s + t)             0 ≤ q ≤ 2 t
    x ≈ s (q − t)

With 2 bits the four values are ± s / 2 and ± 3 s / 2: with a zero only three of the
four could be used. A NaN or an infinity makes its whole block NaN.
"""

import functools

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Key, UInt8

from olsgd_jax._checks import check_switch
from olsgd_jax._vectors import at_least_float32
from olsgd_jax.reductions.base import Draws, Reduction
from olsgd_jax.reductions.codec import Codec
from olsgd_jax.reductions.compressed import compressed
from olsgd_jax.types import ArrayTree, Message

BLOCK = 128
"""Numbers that share a scale: a row of a tile, as TPUs store arrays."""


def quantized(bits: int, error_feedback: float, stochastic: bool) -> Reduction:
    """Builds a mean whose messages are sent in 8, 4 or 2 bits per number.

    Args:
      bits: bits per number.
      error_feedback: share of what rounding loses that is sent with the next message.
      stochastic: whether to round up or down at random, so that the expected result is
        the number itself, instead of rounding to the nearest value. Workers draw
        independently. By default not: the error is up to twice as large, and error
        feedback corrects the bias of the nearest value anyway.

    >>> quantized(8, error_feedback=1.0, stochastic=False).payload(jnp.zeros((32, 32)))
    1056
    """

    check_switch("stochastic", stochastic)

    def payload(message: Message) -> int:
        blocks = sum(-(-x.size // BLOCK) for x in jax.tree.leaves(message))
        return blocks * (BLOCK * bits // 8 + 4)

    def build(draws: Draws | None) -> Reduction:
        codec = Codec(
            functools.partial(_encode, bits=bits, stochastic=stochastic),
            functools.partial(_decode, bits=bits),
            error_feedback,
            BLOCK,
            draws=() if draws is None else (draws.own,),
        )
        return compressed(f"int{bits}", codec, payload)

    return build(None)._replace(draw=build if stochastic else None)


def _top(bits: int) -> float:
    return 1.5 if bits == 2 else 2.0 ** (bits - 1) - 1


def _encode(
    shards: ArrayTree, *draws: Key[Array, "*workers"], bits: int, stochastic: bool
) -> ArrayTree:
    def encode(x: jax.Array) -> UInt8[Array, "shards rows columns"]:
        rows, top = _to_rows(x, bits), _top(bits)
        scale = (_largest(rows) / top).astype(jnp.float32)
        wide = scale[..., None].astype(rows.dtype)
        # The scale of a block of zeros is 0.
        q = rows / jnp.where(wide == 0, 1, wide) + top
        q = jnp.floor(q + _uniform(draws, q)) if stochastic else jnp.round(q)
        packed = _pack(jnp.clip(q, 0, 2 * top).astype(jnp.uint8), bits)
        # In one array: a device may run only one collective at a time.
        return jnp.concatenate([packed, _to_bytes(scale)], axis=1)

    return jax.tree.map(encode, shards)


def _largest(
    rows: Float[Array, "shards rows columns"],
) -> Float[Array, "shards rows"]:
    """Gives the largest absolute value of every row; NaN if a number is not finite."""
    # As whole numbers: these have the same order, and NaNs are the largest. Some
    # compilers' maximum of a NaN and a number is the number.
    whole = jnp.uint64 if rows.dtype.itemsize == 8 else jnp.uint32
    written = lax.bitcast_convert_type(jnp.abs(rows), whole)
    largest = lax.bitcast_convert_type(jnp.max(written, axis=-1), rows.dtype)
    return jnp.where(jnp.isfinite(largest), largest, jnp.nan)


def _uniform(
    draws: tuple[Key[Array, "*workers"], ...], like: jax.Array
) -> Float[Array, "rows columns"]:
    """Draws numbers between 0 and 1, the same for all shards of an array.

    In the second exchange the shards are copies of one sum. Coded differently, they
    would give the workers different means.
    """
    # Outside a round, as if it were the first message.
    [key] = draws or [jax.random.key(0)]
    bits = jax.random.bits(key, like.shape[1:], jnp.uint16)
    return (bits.astype(like.dtype) + 0.5) / 2**16


def _decode(code: ArrayTree, like: ArrayTree, bits: int) -> ArrayTree:
    def decode(
        code: UInt8[Array, "shards rows columns"], like: jax.Array
    ) -> Float[Array, "shards ..."]:
        num_rows = _num_rows(like, bits)
        packed, last = jnp.split(code, [num_rows * bits // 8], axis=1)
        wide = at_least_float32(like).dtype
        q = _unpack(packed, bits).astype(wide)
        scale = _from_bytes(last, num_rows)[..., None].astype(wide)
        shards = ((q - _top(bits)) * scale).reshape(len(code), -1)
        return shards[:, : like[0].size].reshape(like.shape).astype(like.dtype)

    return jax.tree.map(decode, code, like)


def _num_rows(shards: jax.Array, bits: int) -> int:
    """Counts the blocks of a shard, with those that fill up the last packed row."""
    per_byte = 8 // bits
    return -(-shards[0].size // (BLOCK * per_byte)) * per_byte


def _to_rows(x: jax.Array, bits: int) -> Float[Array, "shards rows columns"]:
    """Gives the blocks of every shard."""
    shards, size = x.reshape(len(x), -1), _num_rows(x, bits) * BLOCK
    padding = size - shards.shape[1]
    rows = jnp.pad(shards, ((0, 0), (0, padding))).reshape(len(x), -1, BLOCK)
    return at_least_float32(rows)


def _to_bytes(
    scale: Float[Array, "shards rows"],
) -> UInt8[Array, "shards _ columns"]:
    """Writes scales as rows of bytes."""
    written = lax.bitcast_convert_type(scale, jnp.uint8).reshape(len(scale), -1)
    padding = -written.shape[1] % BLOCK
    return jnp.pad(written, ((0, 0), (0, padding))).reshape(len(scale), -1, BLOCK)


def _from_bytes(
    written: UInt8[Array, "shards _ columns"], num_rows: int
) -> Float[Array, "shards rows"]:
    written = written.reshape(len(written), -1)[:, : 4 * num_rows]
    return lax.bitcast_convert_type(
        written.reshape(len(written), num_rows, 4), jnp.float32
    )


def _pack(
    q: UInt8[Array, "shards rows columns"], bits: int
) -> UInt8[Array, "shards packed columns"]:
    """Puts 8 / bits rows into one: whole rows, so that no number changes its column."""
    per_byte = 8 // bits
    parts = jnp.split(q, per_byte, axis=1)
    return functools.reduce(
        jnp.bitwise_or, [part << (bits * i) for i, part in enumerate(parts)]
    )


def _unpack(
    packed: UInt8[Array, "shards packed columns"], bits: int
) -> UInt8[Array, "shards rows columns"]:
    mask = 2**bits - 1
    parts = [(packed >> (bits * i)) & mask for i in range(8 // bits)]
    return jnp.concatenate(parts, axis=1)
