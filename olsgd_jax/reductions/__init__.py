"""The reductions by name: how the messages of all workers become a mean."""

from collections.abc import Callable

from olsgd_jax.reductions.base import Reduction
from olsgd_jax.reductions.exact import exact
from olsgd_jax.reductions.send_nothing import send_nothing

REDUCTIONS: dict[str, Callable[..., Reduction]] = {
    "exact": exact,
    "send_nothing": send_nothing,
}
"""Builder of every reduction, by name."""
