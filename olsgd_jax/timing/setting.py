"""Setting: everything that the time of a round depends on."""

import dataclasses
import math

from olsgd_jax._checks import check_count, check_number
from olsgd_jax.strategies.base import Strategy, check_delayed, check_num_workers
from olsgd_jax.timing.compute import Compute
from olsgd_jax.timing.network import Network


@dataclasses.dataclass(frozen=True)
class Setting:
    """Strategy, workers and network.

    A round has one mean. If the strategy averages gradients or the models are
    streamed, it has one mean per local step, all of the same size.

    >>> from olsgd_jax import overlap_local_sgd
    >>> from olsgd_jax.timing import Constant, Ring, Setting
    >>> setting = Setting(
    ...     overlap_local_sgd(pullback=0.6), sync_period=4, bytes_per_round=4e9,
    ...     num_workers=2, compute=Constant(0.5), network=Ring(bandwidth=1e9),
    ... )
    >>> setting.mean_seconds
    4.0
    """

    strategy: Strategy
    sync_period: int  # τ
    bytes_per_round: float  # sent by one worker, as counted by `payload_bytes`
    num_workers: int  # m
    compute: Compute
    network: Network
    stream: bool = False  # whether every local step sends a fragment of the models

    def __post_init__(self) -> None:
        """Checks the fields, and that they fit together."""
        check_count("sync_period", self.sync_period)
        check_number("bytes_per_round", self.bytes_per_round, 0, math.inf, "[)")
        check_count("num_workers", self.num_workers)
        check_num_workers(self.strategy, self.num_workers)
        if self.stream:
            check_delayed("stream must be False", self.strategy)

    @property
    def is_delayed(self) -> bool:
        """Whether means travel during the local steps."""
        return self.strategy.mean_of == "start"

    @property
    def means_per_round(self) -> int:
        """How many means a round has."""
        every_step = self.stream or self.strategy.mean_of == "gradients"
        return self.sync_period if every_step else 1

    @property
    def steps_per_mean(self) -> int:
        """How many local steps run before, or during, one mean."""
        return self.sync_period // self.means_per_round

    @property
    def mean_seconds(self) -> float:
        """How long one mean takes."""
        num_bytes = self.bytes_per_round / self.means_per_round
        return self.network.seconds(num_bytes, self.num_workers)
