"""Messages in 8 bits per number, in blocks with a scale; see `quantized`."""

from olsgd_jax.reductions.base import Reduction
from olsgd_jax.reductions.quantized import quantized


def int8(error_feedback: float = 1.0, stochastic: bool = False) -> Reduction:
    """Builds a mean whose messages are sent in 8 bits: 0.26 of float32's bytes.

    In each message, the error is at most 1/254 of the largest number of a block.

    Args:
      error_feedback: share of what rounding loses that is sent with the next message,
        in [0, 1]; 0 for none.
      stochastic: round up or down at random, without bias, instead of to the nearest
        value.

    >>> import jax, jax.numpy as jnp
    >>> from olsgd_jax import int8
    >>> reduction = int8()
    >>> def worker(message):
    ...     return reduction.reduce(message, reduction.init(message))[0]
    >>> jax.vmap(worker, axis_name="workers")(jnp.array([127.0, -1.0]))
    Array([63., 63.], dtype=float32)
    """
    return quantized(8, error_feedback, stochastic)
