"""Times of rounds with slowed-down workers, as measured and as modelled."""

import dataclasses
import statistics
from collections.abc import Iterable
from typing import NamedTuple

from experiments.links.slowdowns import SLOWDOWNS
from experiments.measured.network_records import Record
from experiments.measured.network_work import Work, strategy_of
from olsgd_jax.timing import RoundTime, Setting, round_time

REPETITIONS = 200  # simulations


class Numbers(NamedTuple):
    """Seconds per round, of one strategy."""

    step: float  # a local step that nothing slows down, measured
    mean: float  # alone, measured
    round: float  # measured
    idle: float  # of a worker, mean over workers, measured
    modelled: RoundTime  # from the first two and the slowdown


@dataclasses.dataclass(frozen=True)
class MeasuredMean:
    """A network on which the time of one mean was measured."""

    mean_seconds: float

    def seconds(self, num_bytes: float, num_workers: int) -> float:
        """Returns the measured time; it holds for that mean only."""
        del num_bytes, num_workers
        return self.mean_seconds


def numbers_of(record: Record, label: str) -> Numbers:
    """Computes a strategy's medians over repetitions, and models the same rounds."""
    hosts = [own[label] for own in record["samples"]]
    num_rounds, sync_period = record["num_rounds"], record["sync_period"]

    def of_all(name: str, join=max) -> float:
        """Combines hosts, then takes the median over repetitions."""
        columns = zip(*(host[name] for host in hosts), strict=True)
        return statistics.median(map(join, columns))

    own_work = statistics.median(
        (without - drawn) / (num_rounds * sync_period)
        for host in hosts
        for without, drawn in zip(host["without"], host["drawn"], strict=True)
    )
    step, mean = record["unit"] + own_work, of_all("mean")
    seconds = of_all("with") / num_rounds
    computed = of_all("without", statistics.mean) / num_rounds
    work, num_hosts = Work(label, sync_period), len(hosts)
    strategy, stream = strategy_of(work, num_hosts)
    compute = SLOWDOWNS[record["slowdown"]](step, record["unit"], num_hosts)
    setting = Setting(
        strategy, sync_period, 0, num_hosts, compute, MeasuredMean(mean), stream
    )
    modelled = round_time(setting, num_rounds=num_rounds, repetitions=REPETITIONS)
    return Numbers(step, mean, seconds, seconds - computed, modelled)


def all_numbers(records: Iterable[Record]) -> Iterable[tuple[Record, str, Numbers]]:
    """Goes through all strategies of all records."""
    for record in records:
        for label in record["strategies"]:
            yield record, label, numbers_of(record, label)
