"""The reductions by name: how the messages of all workers become a mean."""

from collections.abc import Callable

from olsgd_jax.reductions.base import Reduction
from olsgd_jax.reductions.bfloat16 import bfloat16
from olsgd_jax.reductions.exact import exact
from olsgd_jax.reductions.int2 import int2
from olsgd_jax.reductions.int4 import int4
from olsgd_jax.reductions.int8 import int8
from olsgd_jax.reductions.low_rank import low_rank
from olsgd_jax.reductions.random_mask import random_mask
from olsgd_jax.reductions.send_nothing import send_nothing
from olsgd_jax.reductions.top_k import top_k

REDUCTIONS: dict[str, Callable[..., Reduction]] = {
    "exact": exact,
    "bfloat16": bfloat16,
    "int8": int8,
    "int4": int4,
    "int2": int2,
    "top_k": top_k,
    "random_mask": random_mask,
    "low_rank": low_rank,
    "send_nothing": send_nothing,
}
"""Builder of every reduction, by name."""

SENDING = tuple(name for name in REDUCTIONS if name != "send_nothing")
"""The names of those that send something."""
