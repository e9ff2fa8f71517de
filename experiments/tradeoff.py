"""Question: what error does each strategy reach, and in how much time?

Run:     python -m experiments.tradeoff --preset cpu
Cost:    hours with the preset cpu on 2 CPU cores; if stopped, it continues
Answer:  a table in out/sweeps/tradeoff.md

The devices of one machine have no network between them, so time is counted in local
steps: one mean of a whole model costs --mean-cost of them, by default what the paper
measured for fully synchronous SGD, and smaller means cost proportionally less. A
delayed mean costs only what the local steps of its round do not cover.
"""

import argparse
import statistics
from collections.abc import Iterable, Mapping

from experiments.pages.figures import Line, draw_lines
from experiments.pages.sections import Picture, Section, Table
from experiments.paper.accuracy import accuracy_of, last_accuracies, said_of_diverged
from experiments.paper.cases import Case, Seeds, groups
from experiments.paper.relative_time import MEAN_COST, relative_time
from experiments.paper.sweep import EVERY, preset_of, run_sweep, sweep_parser
from olsgd_jax.training import Config, Run

SYNC_PERIODS, RANKS = (1, 2, 4, 8, 24), (1, 2, 4, 8)
KINDS = ("overlap_local_sgd", "local_sgd", "PowerSGD", "sync_sgd")
MEANING = (
    "Test error against modelled time, where 1 is the time of the local steps alone. "
    "One mean of a model costs {:g} of a local step; a delayed mean costs only what "
    "the local steps of its round do not cover. Accuracy in percent: mean [lowest, "
    "highest] over seeds."
)


def runs(args: argparse.Namespace) -> list[Config]:
    """Lists all runs of the figure."""
    return [
        *(
            preset_of(args, strategy, tau)
            for strategy in ("local_sgd", "overlap_local_sgd")
            for tau in args.sync_periods
        ),
        *(
            preset_of(
                args,
                "sync_sgd",
                EVERY,
                reduction="low_rank",
                reduction_args={"rank": rank},
            )
            for rank in args.ranks
        ),
        preset_of(args, "sync_sgd", EVERY),
    ]


def section(runs: Iterable[Run], mean_cost: float = MEAN_COST) -> Section | None:
    """Shows error and time of strategies if there are two of them to compare."""
    tables, pictures = [], []
    for group in groups(runs):
        cases = {
            case: seeds
            for case, seeds in group.cases.items()
            if case.kind in KINDS
            and (case.is_tuned or case.kind == "PowerSGD")
            and all(run.facts for run in seeds.values())
        }
        if len({case.kind for case in cases}) > 1:
            ordered = dict(sorted(cases.items(), key=_order))
            title = f"{group.title}: {group.setting}"
            tables.append(_table(title, ordered, mean_cost))
            pictures.append(_picture(group.title, ordered, mean_cost))
    meaning = MEANING.format(mean_cost)
    return Section("Trade-off", meaning, tables, pictures) if tables else None


def _order(item: tuple[Case, Seeds]) -> tuple[int, int, int | float]:
    case, _ = item
    return KINDS.index(case.kind), case.sync_period, _rank(case) or 0


def _rank(case: Case) -> int | float | None:
    return dict(case.reduction_args).get("rank")


def _time(seeds: Seeds, mean_cost: float) -> float:
    return relative_time(next(iter(seeds.values())), mean_cost)


def _table(title: str, cases: Mapping[Case, Seeds], mean_cost: float) -> Table:
    rows = [
        [
            f"{case.name}, rank {_rank(case)}" if _rank(case) else case.name,
            str(case.sync_period),
            f"{_time(seeds, mean_cost):.3f}",
            accuracy_of(seeds.values()),
        ]
        for case, seeds in cases.items()
    ]
    return Table(["Strategy", "τ", "Time", "Accuracy"], rows, title)


def _picture(title: str, cases: Mapping[Case, Seeds], mean_cost: float) -> Picture:
    """Draws the error over time, a line for every strategy."""
    points: dict[tuple[str, int], list[tuple[float, float, str]]] = {}
    for case, seeds in cases.items():
        accuracies = last_accuracies(seeds.values())
        if not accuracies:
            continue
        unit = {"PowerSGD": ", rank", "sync_sgd": ""}.get(case.kind, ", τ")
        label = str(_rank(case) or case.sync_period) if unit else ""
        error = 1 - statistics.mean(accuracies)
        own = points.setdefault((case.name + unit, case.look), [])
        own.append((_time(seeds, mean_cost), error, label))
    lines = {}
    for (name, look), own in points.items():
        x, y, labels = zip(*own, strict=True)
        lines[name] = Line(x, y, look, labels, marked=True)
    figure = draw_lines(lines, "time, relative to the local steps", "test error")
    return Picture(title, figure, said_of_diverged(cases))


def main() -> None:
    parser = sweep_parser(
        __doc__, SYNC_PERIODS, without=("reduction", "reduction_args")
    )
    add = parser.add_argument
    add(
        "--ranks",
        type=int,
        nargs="*",
        default=RANKS,
        help=f"ranks of PowerSGD; {' '.join(map(str, RANKS))}",
    )
    mean_cost = "cost of a mean of a model, in local steps; %(default)g"
    add("--mean-cost", type=float, default=MEAN_COST, help=mean_cost)
    run_sweep(
        parser, runs, lambda args, runs: section(runs, args.mean_cost), "tradeoff.md"
    )


if __name__ == "__main__":
    main()
