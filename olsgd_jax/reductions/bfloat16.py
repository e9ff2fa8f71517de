"""Messages in bfloat16: half the bytes of float32, with 8 bits of precision."""

import jax
import jax.numpy as jnp
from jax import lax

from olsgd_jax.reductions.base import Reduction
from olsgd_jax.reductions.codec import Codec
from olsgd_jax.reductions.compressed import compressed
from olsgd_jax.types import ArrayTree, Message


def bfloat16(error_feedback: float = 1.0) -> Reduction:
    """Builds a mean whose messages are sent in bfloat16 and added up in float32.

    Args:
      error_feedback: share of what rounding loses that is sent with the next message,
        in [0, 1]; 0 for none.

    >>> import jax, jax.numpy as jnp
    >>> from olsgd_jax import bfloat16
    >>> reduction = bfloat16()
    >>> def worker(message):
    ...     return reduction.reduce(message, reduction.init(message))[0]
    >>> jax.vmap(worker, axis_name="workers")(jnp.array([1.0, 3.0]))
    Array([2., 2.], dtype=float32)
    """
    codec = Codec(_encode, _decode, error_feedback)
    return compressed("bfloat16", codec, _payload)


def _encode(shards: ArrayTree) -> ArrayTree:
    # As whole numbers: XLA for CPUs would send bfloat16 as float32.
    return jax.tree.map(
        lambda x: lax.bitcast_convert_type(x.astype(jnp.bfloat16), jnp.uint16), shards
    )


def _decode(code: ArrayTree, like: ArrayTree) -> ArrayTree:
    return jax.tree.map(
        lambda x, y: lax.bitcast_convert_type(x, jnp.bfloat16).astype(y.dtype),
        code,
        like,
    )


def _payload(message: Message) -> int:
    return sum(2 * x.size for x in jax.tree.leaves(message))
