"""A model of time: predicts how long a round takes from its steps and its network."""

from olsgd_jax.timing.chance import RandomPauses, ShiftedExponential, with_stragglers
from olsgd_jax.timing.compute import Compute, Constant, SlowWorker
from olsgd_jax.timing.expected import closed_form, round_time
from olsgd_jax.timing.hiding import smallest_hiding_period
from olsgd_jax.timing.network import Exchanges, Network, Ring, RingOrTree, Tree
from olsgd_jax.timing.setting import Setting
from olsgd_jax.timing.simulation import simulate
from olsgd_jax.timing.slowest import slowest_seconds
from olsgd_jax.timing.times import RoundTime

__all__ = [
    "Compute",
    "Constant",
    "Exchanges",
    "Network",
    "RandomPauses",
    "Ring",
    "RingOrTree",
    "RoundTime",
    "Setting",
    "ShiftedExponential",
    "SlowWorker",
    "Tree",
    "closed_form",
    "round_time",
    "simulate",
    "slowest_seconds",
    "smallest_hiding_period",
    "with_stragglers",
]
