"""Compares measured rounds with the model of time, and chooses a sync period."""

import dataclasses
from typing import NamedTuple

from olsgd_jax.bench.result import Compared
from olsgd_jax.bench.sending import Sending
from olsgd_jax.bench.turns import Samples, quartiles
from olsgd_jax.bench.work import Rounds
from olsgd_jax.strategies.base import Strategy
from olsgd_jax.timing import (
    Constant,
    Network,
    Setting,
    round_time,
    smallest_hiding_period,
)

LONGEST = 64
"""The largest sync period to choose, because a round's batches must fit in memory."""


class Case(NamedTuple):
    """One strategy, and the rounds of it that are timed."""

    name: str  # as given on the command line
    strategy: Strategy
    stream: bool
    sending: Sending
    rounds: Rounds

    @property
    def with_mean(self) -> str:
        """Names the samples of its rounds."""
        return f"{self.name} with"

    @property
    def without_mean(self) -> str:
        """Names the samples of the same rounds without their means."""
        return f"{self.name} without"

    @property
    def means(self) -> str:
        """Names the samples of one mean; strategies with equal messages share them."""
        return f"mean of {self.sending.messages}"


def compare(
    case: Case,
    samples: dict[str, Samples],
    sync_period: int,
    num_workers: int,
    step: float,
    network: Network,
) -> Compared:
    """Compares the measured rounds of a strategy with the model's prediction.

    Args:
      case: the strategy.
      samples: seconds of everything that was timed, by name.
      sync_period: τ.
      num_workers: number of workers, m.
      step: seconds of one local step.
      network: the network derived from the measured means.
    """
    setting = Setting(
        case.strategy, sync_period, 0, num_workers, Constant(step), network, case.stream
    )
    num_means = setting.means_per_round
    num_bytes = num_means * case.sending.num_bytes
    setting = dataclasses.replace(setting, bytes_per_round=num_bytes)
    predicted = round_time(setting).seconds
    with_mean, without_mean = samples[case.with_mean], samples[case.without_mean]
    means = quartiles(num_means * samples[case.means])
    exposed, measured = quartiles(with_mean - without_mean), quartiles(with_mean)
    return Compared(
        strategy=case.name,
        driver=case.sending.driver,
        form=case.sending.form,
        means_per_round=num_means,
        bytes_per_round=num_bytes,
        means=means,
        with_mean=measured,
        without_mean=quartiles(without_mean),
        exposed=exposed,
        hidden=1 - exposed.median / means.median,
        predicted=predicted,
        ratio=measured.median / predicted,
    )


def choose_period(
    delayed: Strategy, num_bytes: int, num_workers: int, step: float, network: Network
) -> tuple[int, str]:
    """Chooses the smallest sync period that hides the mean, and gives the reason.

    >>> from olsgd_jax import overlap_local_sgd
    >>> from olsgd_jax.timing import Ring
    >>> network = Ring(bandwidth=1e9)
    >>> choose_period(overlap_local_sgd(0.6), 10**9, 2, step=0.3, network=network)
    (4, 'the smallest that hides the mean')
    >>> choose_period(overlap_local_sgd(0.6), 10**9, 2, step=0.01, network=network)
    (64, 'the largest allowed; 100 would hide the mean')
    """
    setting = Setting(delayed, 1, num_bytes, num_workers, Constant(step), network)
    hiding = smallest_hiding_period(setting)
    assert hiding is not None  # because the mean is delayed and not streamed
    if hiding > LONGEST:
        return LONGEST, f"the largest allowed; {hiding} would hide the mean"
    return hiding, "the smallest that hides the mean"
