"""Compiles a round into programs that overlap on each platform."""

from olsgd_jax.drivers.forms.base import fragments_form
from olsgd_jax.drivers.forms.buckets import count_buckets, to_buckets
from olsgd_jax.drivers.forms.fragments import cut_fragments
from olsgd_jax.drivers.host import host
from olsgd_jax.drivers.platforms import platform_of

__all__ = [
    "count_buckets",
    "cut_fragments",
    "fragments_form",
    "host",
    "platform_of",
    "to_buckets",
]
