"""Codec: how shards of a message are written for the network.

    encode    shards, draws -> the arrays that are sent in their place
    decode    these arrays, and shards to take shapes and dtypes from -> shards

Shards have a leading axis: shard j goes to worker j. Both functions treat the shards
one by one, in small blocks, so that they can be sent and added up separately.
"""

from collections.abc import Callable
from typing import NamedTuple

from jaxtyping import Array, Key

from olsgd_jax.types import ArrayTree


class Codec(NamedTuple):
    """How shards are written for the network.

    >>> import jax.numpy as jnp
    >>> codec, shards = AS_IT_IS, jnp.ones((2, 3))
    >>> codec.decode(codec.encode(shards), shards) is shards
    True
    """

    encode: Callable[..., ArrayTree]
    decode: Callable[[ArrayTree, ArrayTree], ArrayTree]
    error_feedback: float = 0.0  # share of what is lost that the next message gets
    block: int = 1  # numbers that are written together
    # What else `encode` gets: a key of the worker's own, if it rounds at random.
    draws: tuple[Key[Array, "*workers"], ...] = ()


AS_IT_IS = Codec(encode=lambda shards: shards, decode=lambda code, like: code)
"""Sends shards unchanged."""
