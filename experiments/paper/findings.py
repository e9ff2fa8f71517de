"""Which of the paper's findings hold in these runs.

A finding says that one case is more accurate than another. Two cases tie if they differ
by no more than runs of the same case with different seeds do. A run that diverged ranks
below all others.
"""

import math
import statistics
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from experiments.pages.sections import Section, Table
from experiments.paper.accuracy import last_accuracies
from experiments.paper.cases import groups
from experiments.paper.published import ACCURACY, NAMES, SYNC_PERIODS, SYNC_SGD
from olsgd_jax.training import Run

MEANING = (
    "Each row compares two test accuracies in percent, means over seeds. The paper "
    "finds the first one to be higher. Here that holds, does not hold, or is a tie: a "
    "difference of at most {:.2f}, the widest range of runs that differ only in their "
    "seed."
)


class Cell(NamedTuple):
    """A cell of the paper's tables."""

    data: str
    strategy: str
    sync_period: int  # 1 for fully synchronous SGD


class Finding(NamedTuple):
    """The first cell of every pair is the more accurate one."""

    text: str
    pairs: list[tuple[Cell, Cell]]


def _over(data: str, better: str, worse: str, sync_periods: Iterable[int]):
    return [(Cell(data, better, tau), Cell(data, worse, tau)) for tau in sync_periods]


OVERLAP, SYNC = "overlap_local_sgd", "sync_sgd"
FINDINGS = [
    Finding(
        "Overlap Local-SGD above CoCoD-SGD",
        _over("iid", OVERLAP, "cocod_sgd", SYNC_PERIODS),
    ),
    Finding("CoCoD-SGD above EAMSGD", _over("iid", "cocod_sgd", "easgd", SYNC_PERIODS)),
    *(
        Finding(
            f"{NAMES[strategy]} loses accuracy with τ",
            [(Cell("iid", strategy, 2), Cell("iid", strategy, 24))],
        )
        for strategy in ("cocod_sgd", "easgd", OVERLAP)
    ),
    Finding(
        "Non-IID: Overlap Local-SGD is stable, CoCoD-SGD is not",
        _over("non_iid", OVERLAP, "cocod_sgd", (8, 24)),
    ),
    Finding(
        "Non-IID: Overlap Local-SGD above EAMSGD",
        _over("non_iid", OVERLAP, "easgd", SYNC_PERIODS),
    ),
    Finding(
        "Synchronous SGD is less accurate on non-IID data",
        [(Cell("iid", SYNC, 1), Cell("non_iid", SYNC, 1))],
    ),
    Finding(
        "Non-IID: Overlap Local-SGD above synchronous SGD",
        [(Cell("non_iid", OVERLAP, tau), Cell("non_iid", SYNC, 1)) for tau in (2, 8)],
    ),
]


def section(runs: Iterable[Run]) -> Section | None:
    """Checks every finding for which there are runs."""
    cells = _cells(runs)
    tie = _widest_range(cells)
    rows = [
        [
            finding.text,
            " and ".join(dict.fromkeys(str(cell.sync_period) for cell in pair)),
            _verdict(cells[pair[0]], cells[pair[1]], tie),
            " / ".join(_written(_mean(cells[cell])) for cell in pair),
            " / ".join(_written(_paper(cell)) for cell in pair),
        ]
        for finding in FINDINGS
        for pair in finding.pairs
        if all(cell in cells for cell in pair)
    ]
    heads = ["Finding", "τ", "Verdict", "Here", "Paper"]
    tables = [Table(heads, rows)]
    return Section("Findings", MEANING.format(tie), tables) if rows else None


def _cells(runs: Iterable[Run]) -> dict[Cell, list[Run]]:
    """Collects the runs of every cell; of several groups, the largest one counts."""
    cells = {}
    for group in sorted(groups(runs), key=lambda group: len(group.cases)):
        for case, seeds in group.cases.items():
            if case.is_tuned:
                cell = Cell(group.data, case.strategy, case.sync_period)
                cells[cell] = list(seeds.values())
    return cells


def _widest_range(cells: Mapping[Cell, list[Run]]) -> float:
    accuracies = [last_accuracies(seeds) for seeds in cells.values()]
    return max((100 * (max(x) - min(x)) for x in accuracies if x), default=0.0)


def _paper(cell: Cell) -> float:
    value = SYNC_SGD[cell.data]
    if cell.strategy != SYNC:
        place = SYNC_PERIODS.index(cell.sync_period)
        value = ACCURACY[cell.data][cell.strategy][place]
    return -math.inf if value is None else value


def _verdict(better: list[Run], worse: list[Run], tie: float) -> str:
    first, second = map(_mean, (better, worse))
    if first == second or abs(first - second) <= tie:
        return "tie"
    return "holds" if first > second else "does not hold"


def _written(accuracy: float) -> str:
    return f"{accuracy:.2f}" if math.isfinite(accuracy) else "diverged"


def _mean(seeds: list[Run]) -> float:
    accuracies = last_accuracies(seeds)
    is_stable = len(accuracies) == len(seeds)
    return 100 * statistics.mean(accuracies) if is_stable else -math.inf
