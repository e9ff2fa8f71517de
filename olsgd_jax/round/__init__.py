"""The round: local steps, one mean, one mix, and the state that they update."""

from olsgd_jax.round.round_parts import make_round_parts

__all__ = [
    "make_round_parts",
]
