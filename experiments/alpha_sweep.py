"""Question: how far should a mix pull workers to the anchor?

Run:     python -m experiments.alpha_sweep --preset cpu
Cost:    hours with the preset cpu on 2 CPU cores; if stopped, it continues
Answer:  a table of accuracies in out/sweeps/alpha_sweep.md, over the pullback α
         and the sync period τ; the paper found α = 0.6 best for every τ of 2 or more
"""

import argparse
import itertools
import statistics
from collections.abc import Iterable, Mapping

from matplotlib.figure import Figure

from experiments.pages.figures import Line, draw_lines
from experiments.pages.sections import Picture, Section, Table
from experiments.paper.accuracy import accuracy_of, last_accuracies
from experiments.paper.cases import Group, Seeds, groups
from experiments.paper.sweep import preset_of, run_sweep, sweep_parser
from olsgd_jax.training import Config, Run

PULLBACKS, SYNC_PERIODS = (0.2, 0.4, 0.6, 0.8, 1.0), (2, 8, 24)
MOMENTUM = 0.7  # β
MEANING = (
    "Test accuracy of Overlap Local-SGD in percent, by pullback α and sync period τ: "
    "mean [lowest, highest] over the seeds that all pullbacks share."
)


def runs(args: argparse.Namespace) -> list[Config]:
    """Lists all runs of the table."""
    return [
        preset_of(
            args,
            "overlap_local_sgd",
            tau,
            strategy_args={"pullback": pullback, "anchor_momentum": MOMENTUM},
        )
        for pullback, tau in itertools.product(args.pullbacks, args.sync_periods)
    ]


def section(runs: Iterable[Run]) -> Section | None:
    """Shows accuracy over pullback if there are two pullbacks to compare."""
    tables, pictures = [], []
    for group in groups(runs):
        lines = _lines(group)
        if lines:
            tables.append(_table(f"{group.title}: {group.setting}", lines))
            pictures.append(Picture(group.title, _figure(lines)))
    return Section("Pullback", MEANING, tables, pictures) if tables else None


def _lines(group: Group) -> dict[str, dict[float, list[Run]]]:
    """Sorts runs by sync period and pullback."""
    found: dict[str, dict[float, Seeds]] = {}
    for case in sorted(group.cases):
        args = dict(case.args)
        is_swept = case.is_exact and args.get("anchor_momentum") == MOMENTUM
        if case.strategy == "overlap_local_sgd" and is_swept:
            rated = ", rated velocity" if case.rated_velocity else ""
            name = f"τ = {case.sync_period}{rated}"
            found.setdefault(name, {})[args["pullback"]] = group.cases[case]
    return {name: _common(x) for name, x in found.items() if len(x) > 1}


def _common(pullbacks: Mapping[float, Seeds]) -> dict[float, list[Run]]:
    """Picks the runs of seeds that every pullback has, for a fair comparison."""
    seeds = sorted(set.intersection(*map(set, pullbacks.values())))
    return {
        pullback: [runs[seed] for seed in seeds] for pullback, runs in pullbacks.items()
    }


def _table(title: str, lines: Mapping[str, Mapping[float, list[Run]]]) -> Table:
    pullbacks = sorted({pullback for line in lines.values() for pullback in line})
    rows = [
        [f"{pullback:g}", *(accuracy_of(x.get(pullback, [])) for x in lines.values())]
        for pullback in pullbacks
    ]
    return Table(["α", *lines], rows, title)


def _figure(lines: Mapping[str, Mapping[float, list[Run]]]) -> Figure:
    """Draws a line for every sync period; a pullback that diverged has no point."""
    drawn = {}
    for look, (name, runs) in enumerate(lines.items()):
        means = {
            pullback: statistics.mean(accuracies)
            for pullback, seeds in runs.items()
            if (accuracies := last_accuracies(seeds))
        }
        x, y = list(means), list(means.values())
        drawn[name] = Line(x, y, look, marked=True)
    return draw_lines(drawn, "pullback α", "test accuracy")


def main() -> None:
    parser = sweep_parser(__doc__, SYNC_PERIODS)
    parser.add_argument(
        "--pullbacks",
        type=float,
        nargs="+",
        default=PULLBACKS,
        help=f"pullbacks α; {' '.join(map(str, PULLBACKS))}",
    )
    run_sweep(parser, runs, lambda args, runs: section(runs), "alpha_sweep.md")


if __name__ == "__main__":
    main()
