"""Cases of `guidance`: strategies with their arguments, rates and warm-ups."""

from collections.abc import Sequence
from typing import NamedTuple

from olsgd_jax import STRATEGIES, Strategy

RATES = {"gpt": 1e-3, "digits": 0.1}
"""The learning rate of synchronous SGD on each task."""

OVERLAP = ((0.6, 0.7), (0.6, 0.0), (0.3, 0.0), (0.5, 0.5))
"""Pullback and anchor momentum of Overlap Local-SGD."""


class Case(NamedTuple):
    """One run: what is trained, and how its workers communicate."""

    task: str
    strategy: str
    learning_rate: float
    sync_period: int = 1
    pullback: float | None = None  # α
    anchor_momentum: float | None = None  # β
    warmup: float = 0.0  # fraction of the local steps that average gradients
    seed: int = 0
    num_steps: int = 320

    @property
    def name(self) -> str:
        """The strategy with its arguments.

        >>> Case("gpt", "overlap_local_sgd", 1e-3, 4, 0.6, 0.0).name
        'overlap_local_sgd(0.6, 0)'
        """
        args = [x for x in (self.pullback, self.anchor_momentum) if x is not None]
        shown = f"({', '.join(f'{x:g}' for x in args)})" if args else ""
        return self.strategy + shown

    def build(self) -> Strategy:
        """Builds the strategy."""
        args = {"pullback": self.pullback, "anchor_momentum": self.anchor_momentum}
        given = {name: value for name, value in args.items() if value is not None}
        return STRATEGIES[self.strategy].build(**given)

    @property
    def progress(self) -> float:
        """The fraction of its local steps that the consensus keeps, at a steady pace.

        With a pullback α the mean of the models moves by s per round where the local
        steps move it by u. When x, z and v all move at that pace, v = s and

            s = (1 − α) u + α β s,    so s / u = (1 − α) / (1 − α β)

        >>> Case("gpt", "cocod_sgd", 1e-3).progress
        1.0
        >>> Case("gpt", "overlap_local_sgd", 1e-3, 4, 0.5, 0.0).progress
        0.5
        """
        a, b = self.pullback or 0.0, self.anchor_momentum or 0.0
        return (1 - a) / (1 - a * b)


def list_cases(task: str, num_seeds: int, sync_periods: Sequence[int]) -> list[Case]:
    """Lists all runs of a task, the most telling ones first."""
    rate = RATES[task]
    sync = Case(task, "sync_sgd", rate)

    def others(tau: int) -> list[Case]:
        overlap = Case(task, "overlap_local_sgd", rate, tau)
        return [
            Case(task, "local_sgd", rate, tau),
            Case(task, "cocod_sgd", rate, tau),
            *(overlap._replace(pullback=a, anchor_momentum=b) for a, b in OVERLAP),
        ]

    # Rates that make up for what a mix takes back, and larger ones.
    rates = [
        case._replace(learning_rate=round(times * rate / case.progress, 6))
        for times in (1, 2, 4)
        for case in (sync, *others(4))
        if times == 1 or (case.pullback, case.anchor_momentum) not in OVERLAP[1::2]
    ]
    warm = [
        case._replace(warmup=part)
        for case in others(4)
        for part in (0.1, 0.25)
        if case.strategy != "local_sgd" and case.anchor_momentum != 0.5
    ]
    seeds = [
        case._replace(seed=seed)
        for seed in range(1, num_seeds)
        for case in (sync, *others(4), *rates)
        if case.learning_rate * case.progress < 1.01 * rate
    ]
    first = [sync, *others(4), *rates, *warm, *seeds]
    wanted = [
        case
        for case in (*first, *others(8), *others(1), *others(2))
        if case.strategy == "sync_sgd" or case.sync_period in sync_periods
    ]
    return list(dict.fromkeys(wanted))
