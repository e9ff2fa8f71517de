"""The strategies by name; each file opens with its equations."""

from collections.abc import Callable

from olsgd_jax.strategies.base import Strategy
from olsgd_jax.strategies.cocod_sgd import cocod_sgd
from olsgd_jax.strategies.easgd import easgd
from olsgd_jax.strategies.local_sgd import local_sgd
from olsgd_jax.strategies.overlap_local_sgd import overlap_local_sgd
from olsgd_jax.strategies.powersgd import powersgd
from olsgd_jax.strategies.slowmo import slowmo
from olsgd_jax.strategies.sync_sgd import sync_sgd

STRATEGIES: dict[str, Callable[..., Strategy]] = {
    "sync_sgd": sync_sgd,
    "local_sgd": local_sgd,
    "slowmo": slowmo,
    "easgd": easgd,
    "cocod_sgd": cocod_sgd,
    "overlap_local_sgd": overlap_local_sgd,
    "powersgd": powersgd,
}
"""Builder of every strategy by its name."""
