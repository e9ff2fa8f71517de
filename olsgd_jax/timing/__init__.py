"""A model of time: how long a round takes, from its local steps and its network."""

from olsgd_jax.timing.chance import RandomPauses as RandomPauses
from olsgd_jax.timing.chance import ShiftedExponential as ShiftedExponential
from olsgd_jax.timing.chance import with_stragglers as with_stragglers
from olsgd_jax.timing.compute import Compute as Compute
from olsgd_jax.timing.compute import Constant as Constant
from olsgd_jax.timing.compute import SlowWorker as SlowWorker
from olsgd_jax.timing.expected import closed_form as closed_form
from olsgd_jax.timing.expected import round_time as round_time
from olsgd_jax.timing.hiding import smallest_hiding_period as smallest_hiding_period
from olsgd_jax.timing.network import Network as Network
from olsgd_jax.timing.network import Ring as Ring
from olsgd_jax.timing.network import RingOrTree as RingOrTree
from olsgd_jax.timing.network import Tree as Tree
from olsgd_jax.timing.setting import Setting as Setting
from olsgd_jax.timing.simulation import simulate as simulate
from olsgd_jax.timing.slowest import slowest_seconds as slowest_seconds
from olsgd_jax.timing.times import RoundTime as RoundTime
