"""A model of time: how long a round takes, from its local steps and its network."""

from olsgd_jax.delay.chance import RandomPauses as RandomPauses
from olsgd_jax.delay.chance import ShiftedExponential as ShiftedExponential
from olsgd_jax.delay.chance import with_stragglers as with_stragglers
from olsgd_jax.delay.compute import Compute as Compute
from olsgd_jax.delay.compute import Constant as Constant
from olsgd_jax.delay.compute import SlowWorker as SlowWorker
from olsgd_jax.delay.expected import closed_form as closed_form
from olsgd_jax.delay.expected import round_time as round_time
from olsgd_jax.delay.hiding import smallest_hiding_period as smallest_hiding_period
from olsgd_jax.delay.network import Network as Network
from olsgd_jax.delay.network import Ring as Ring
from olsgd_jax.delay.network import RingOrTree as RingOrTree
from olsgd_jax.delay.network import Tree as Tree
from olsgd_jax.delay.setting import Setting as Setting
from olsgd_jax.delay.simulation import simulate as simulate
from olsgd_jax.delay.slowest import slowest_seconds as slowest_seconds
from olsgd_jax.delay.times import RoundTime as RoundTime
