"""Question: how accurate is each strategy, over sync periods, on IID and skewed data?

Run:     python -m experiments.tables --preset cpu
Cost:    hours with the preset cpu on 2 CPU cores; if stopped, it continues
Answer:  both accuracy tables of the paper, next to the paper's own numbers, in
         out/sweeps/tables.md
"""

import argparse
import collections
import itertools
from collections.abc import Iterable, Mapping, Sequence

from experiments.cli.options import count
from experiments.pages.sections import Section, Table
from experiments.paper.accuracy import accuracy_of
from experiments.paper.cases import Case, Group, Seeds, groups
from experiments.paper.presets import NON_IID
from experiments.paper.published import ACCURACY, COMPARED, SYNC_PERIODS, SYNC_SGD
from experiments.paper.sweep import EVERY, preset_of, run_sweep, sweep_parser
from olsgd_jax.training import Config, Run

DATA = ("iid", "non_iid")
DELAYED = ("cocod_sgd", "overlap_local_sgd")
MEANING = (
    "Test accuracy in percent after the last round: mean [lowest, highest] over seeds. "
    "The number in parentheses is the paper's, for ResNet-18, 16 workers and 300 "
    "epochs."
)


def cells(sync_periods: Sequence[int]) -> list[tuple[str, str, int]]:
    """Lists data, strategy and sync period of every cell of both tables."""
    return [
        *itertools.product(DATA, COMPARED, sync_periods),
        *((data, "sync_sgd", EVERY) for data in DATA),
    ]


def runs(args: argparse.Namespace) -> list[Config]:
    """Lists all runs, those of the first seed first.

    Further seeds are for the cells that support the paper's claims: delayed strategies
    at sync periods that hide communication. With --all-seeds, for all cells.
    """
    configs = []
    for seed, (data, strategy, tau) in itertools.product(
        range(args.seeds), cells(args.sync_periods)
    ):
        if seed and not (args.all_seeds or (strategy in DELAYED and tau in (2, 8))):
            continue
        partition = NON_IID[args.preset] if data == "non_iid" else "iid"
        configs.append(preset_of(args, strategy, tau, partition=partition, seed=seed))
    return configs


def section(runs: Iterable[Run]) -> Section | None:
    """Makes both tables from the runs that the paper's tables have."""
    tables = []
    for group in groups(runs):
        cases = _cases_of_tables(group)
        if any(case.strategy in COMPARED for case in cases):
            title = f"{group.title}: {group.setting}"
            tables.append(table(title, group.data, cases))
    return Section("Accuracy", MEANING, tables) if tables else None


def table(title: str, data: str, cases: Mapping[Case, Seeds]) -> Table:
    """Makes one of the two tables."""
    sync = [case for case in cases if case.strategy == "sync_sgd"]
    others = sorted(
        (case for case in cases if case not in sync),
        key=lambda case: (COMPARED.index(case.strategy), case.sync_period),
    )
    sync_periods = sorted({case.sync_period for case in others})
    ours = {(case.name, case.sync_period): cases[case].values() for case in others}
    rows = [
        [name]
        + [
            f"{accuracy_of(ours.get((name, tau), ()))} ({_paper(data, strategy, tau)})"
            for tau in sync_periods
        ]
        for name, strategy in {case.name: case.strategy for case in others}.items()
    ]
    note = ". ".join(
        f"{case.name}: {accuracy_of(cases[case].values())} ({SYNC_SGD[data]})"
        for case in sync
    )
    heads = ["Strategy", *(f"τ = {tau}" for tau in sync_periods)]
    return Table(heads, rows, title, note)


def _cases_of_tables(group: Group) -> dict[Case, Seeds]:
    """Picks the paper's cases, and sync periods that two strategies have."""
    tuned = [
        case
        for case in group.cases
        if case.strategy in (*COMPARED, "sync_sgd") and case.is_tuned
    ]
    num = collections.Counter(case.sync_period for case in tuned)
    return {
        case: group.cases[case]
        for case in tuned
        if case.sync_period in SYNC_PERIODS or num[case.sync_period] > 1
    }


def _paper(data: str, strategy: str, tau: int) -> str:
    if tau not in SYNC_PERIODS:
        return "—"
    value = ACCURACY[data][strategy][SYNC_PERIODS.index(tau)]
    return "diverged" if value is None else f"{value:.2f}"


def main() -> None:
    parser = sweep_parser(__doc__, SYNC_PERIODS, without=("partition", "seed"))
    add = parser.add_argument
    add("--seeds", type=count, default=3, help="seeds of the main cells; %(default)s")
    add("--all-seeds", action="store_true", help="run all seeds in all cells")
    run_sweep(parser, runs, lambda args, runs: section(runs), "tables.md")


if __name__ == "__main__":
    main()
