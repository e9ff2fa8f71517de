"""Question: how accurate is each strategy, over sync periods, on IID and skewed data?

Run:     python -m experiments.tables --preset cpu --out out/tables
Cost:    several hours at the scale of 2 CPU cores; stopped, it goes on where it was
Answer:  both accuracy tables of the paper, with the paper's numbers beside them, in
         out/tables/tables.md
"""

import argparse
import itertools
import statistics
from collections.abc import Iterable, Sequence

from experiments.paper import ACCURACY, NAMES, SYNC_PERIODS, SYNC_SGD
from experiments.presets import NON_IID
from experiments.sweep import preset_of, run_sweep, sweep_parser
from olsgd_jax import Config, Run

DATA = ("iid", "non_iid")
STRATEGIES = ("cocod_sgd", "easgd", "overlap_local_sgd")
DELAYED = ("cocod_sgd", "overlap_local_sgd")


def cells(sync_periods: Sequence[int]) -> list[tuple[str, str, int]]:
    """Lists data, strategy and sync period of every cell of both tables."""
    # Synchronous SGD averages at every step; its rounds only say when to look.
    return [
        *itertools.product(DATA, STRATEGIES, sync_periods),
        *((data, "sync_sgd", max(sync_periods)) for data in DATA),
    ]


def runs(args: argparse.Namespace) -> dict[str, Config]:
    """Names all runs, those of the first seed first.

    More seeds are for the cells that the paper's claims stand on: delayed strategies
    at sync periods that hide communication; all of them with --all-seeds.
    """
    configs = {}
    for seed, (data, strategy, tau) in itertools.product(
        range(args.seeds), cells(args.sync_periods)
    ):
        if seed and not (args.all_seeds or (strategy in DELAYED and tau in (2, 8))):
            continue
        partition = NON_IID[args.preset] if data == "non_iid" else "iid"
        configs[f"{data}-{strategy}-{tau}-{seed}"] = preset_of(
            args, strategy, tau, partition=partition, seed=seed
        )
    return configs


def table(data: str, runs: dict[str, Run], sync_periods: Sequence[int]) -> str:
    """Writes one of the two tables as Markdown."""
    lines = ["| | " + " | ".join(f"τ = {tau}" for tau in sync_periods) + " |"]
    lines.append("| --- |" + " --- |" * len(sync_periods))
    for strategy in STRATEGIES:
        row = [
            f"{cell(runs, data, strategy, tau)} ({_paper(data, strategy, tau)})"
            for tau in sync_periods
        ]
        lines.append(f"| {NAMES[strategy]} | {' | '.join(row)} |")
    sync = cell(runs, data, "sync_sgd", max(sync_periods))
    lines += ["", f"{NAMES['sync_sgd']}: {sync} ({SYNC_SGD[data]})."]
    return "\n".join(lines)


def cell(runs: dict[str, Run], data: str, strategy: str, tau: int) -> str:
    """Writes the accuracy of all seeds: their mean, and from where to where."""
    prefix = f"{data}-{strategy}-{tau}-"
    seeds = [run for name, run in runs.items() if name.startswith(prefix)]
    return accuracy_of(seeds)


def accuracy_of(seeds: Iterable[Run]) -> str:
    """Writes the last accuracy of runs that differ in their seed, in percent."""
    seeds = list(seeds)
    finished = [
        100 * run.records[-1].test_accuracy
        for run in seeds
        if run.outcome == "finished"
    ]
    diverged = len(seeds) - len(finished)
    if not finished:
        return "diverged" if diverged else "—"
    text = f"{statistics.mean(finished):.2f}"
    if len(finished) > 1:
        text += f" [{min(finished):.2f}, {max(finished):.2f}]"
    return text + (f", {diverged} of {len(seeds)} diverged" if diverged else "")


def _paper(data: str, strategy: str, tau: int) -> str:
    if tau not in SYNC_PERIODS:
        return "—"
    value = ACCURACY[data][strategy][SYNC_PERIODS.index(tau)]
    return "diverged" if value is None else f"{value:.2f}"


def write_tables(args: argparse.Namespace, runs: dict[str, Run]) -> str:
    """Writes both tables to a file, and returns what is in it."""
    titles = {"iid": "IID data", "non_iid": "Non-IID data"}
    parts = [
        "Test accuracy in percent after the last round: mean [least, most] over seeds, "
        "in parentheses the paper's, for ResNet-18 and 300 epochs."
    ]
    for data, title in titles.items():
        parts += [f"## {title}", table(data, runs, args.sync_periods)]
    text = "\n\n".join(parts) + "\n"
    (args.out / "tables.md").write_text(text, encoding="utf-8")
    return text


def main() -> None:
    parser = sweep_parser(__doc__, "out/tables", without=("partition", "seed"))
    parser.add_argument("--seeds", type=int, default=3, help="of the most telling runs")
    parser.add_argument("--all-seeds", action="store_true", help="seeds for all cells")
    parser.add_argument(
        "--sync-periods", type=int, nargs="+", default=SYNC_PERIODS, help="τ"
    )
    run_sweep(parser, runs, write_tables)


if __name__ == "__main__":
    main()
