"""One case of `network`: hosts, a link, a strategy and a sync period."""

import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from experiments.links.hosts import bits_per_second
from experiments.measured.network_numbers import of_hosts
from experiments.measured.network_work import (
    BATCH_SIZE,
    DEPTH,
    WIDTH,
    Work,
    reduction_of,
    strategy_of,
)
from experiments.processes.host_processes import ask_all
from olsgd_jax.training import check_count


class Case(NamedTuple):
    """What is measured."""

    num_hosts: int
    rate: str  # each way, on every link
    strategy: str  # its label (see `read_label`)
    sync_period: int  # τ
    repetitions: int  # rounds of every kind
    width: int = WIDTH
    depth: int = DEPTH

    @property
    def name(self) -> str:
        """Its name while it runs."""
        where = f"{self.num_hosts} hosts, {self.rate}"
        return f"{where}, {self.strategy}, τ = {self.sync_period}"

    @property
    def work(self) -> Work:
        """The work of every process."""
        return Work(self.strategy, self.sync_period, self.width, self.depth)


def list_cases(
    hosts: Iterable[int],
    rates: Iterable[str],
    strategies: Iterable[str],
    sync_periods: Sequence[int],
    options: tuple[int, int, int],
) -> list[Case]:
    """Lists all cases, those of the fastest links first.

    Strategies that communicate at every step only have a sync period of 1. All cases
    have the repetitions, width and depth that `options` gives.
    """
    if options[0] < 2:
        raise ValueError(f"repetitions must be at least 2, got {options[0]}")
    for sync_period in sync_periods:
        check_count("sync_period", sync_period)
    cases = []
    for num_hosts, rate, strategy in itertools.product(
        hosts, sorted(rates, key=bits_per_second, reverse=True), strategies
    ):
        work = Work(strategy, 1)
        built, _ = strategy_of(work, num_hosts)
        reduction_of(work)  # checks its arguments
        periods = [1] if built.mean_of == "gradients" else sync_periods
        cases += [Case(num_hosts, rate, strategy, tau, *options) for tau in periods]
    return cases


def run_case(case: Case) -> dict:
    """Measures one case."""
    question = case.work, case.repetitions
    answers = ask_all("experiments.network", question, case.num_hosts, case.rate)
    samples = of_hosts([x["samples"] for x in answers])
    return {
        "batch_size": BATCH_SIZE,
        **answers[0]["sizes"],
        "samples": {x: [round(y, 6) for y in own] for x, own in samples.items()},
    }
