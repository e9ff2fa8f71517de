"""Question: how much accuracy do messages of fewer bits cost?

Run:     python -m experiments.fewer_bits --preset cpu
Cost:    hours with the preset cpu on 2 CPU cores; if stopped, it continues
Answer:  a table in out/sweeps/fewer_bits.md: accuracy by reduction, with and without
         error feedback, over sync periods, on IID and skewed data
"""

import argparse
import itertools
from collections.abc import Iterable, Sequence

from experiments.cli.options import count
from experiments.pages.sections import Section, Table
from experiments.paper.accuracy import accuracy_of
from experiments.paper.cases import Case, Group, groups
from experiments.paper.presets import NON_IID
from experiments.paper.sweep import preset_of, run_sweep, sweep_parser
from olsgd_jax import REDUCTIONS
from olsgd_jax.training import Config, Run

SYNC_PERIODS = (2, 8)
STRATEGY = "overlap_local_sgd"
SEVERAL_SEEDS = ("exact", "int8")
# All that send something, and send whole messages: the anchor is the same everywhere.
REDUCED = tuple(x for x in REDUCTIONS if x not in ("send_nothing", "random_mask"))
MEANING = (
    "Test accuracy of Overlap Local-SGD in percent after the last round, by reduction: "
    "mean [lowest, highest] over seeds. Without error feedback, what a reduction loses "
    "is never sent."
)


def runs(args: argparse.Namespace) -> list[Config]:
    """Lists all runs, reduction by reduction, with error feedback first."""
    configs = []
    for name, feedback in itertools.product(args.reductions, (True, False)):
        own = Config(reduction=name).reduction_args or {}
        if not feedback:
            if name in SEVERAL_SEEDS or "error_feedback" not in own:
                continue
            own = {**own, "error_feedback": 0.0}
        seeds = range(args.seeds if name in SEVERAL_SEEDS else 1)
        options = {"reduction": name, "reduction_args": own}
        partitions = ("iid", NON_IID[args.preset])
        for seed, tau in itertools.product(seeds, args.sync_periods):
            configs += [
                preset_of(args, STRATEGY, tau, seed=seed, partition=x, **options)
                for x in partitions
            ]
    return configs


def section(runs: Iterable[Run]) -> Section | None:
    """Shows accuracy over reductions if there are two reductions to compare."""
    tables = []
    for group in groups(runs):
        cases = [x for x in group.cases if x.strategy == STRATEGY and _is_tuned(x)]
        if not all(x.is_exact for x in cases):
            tables.append(_table(group, cases))
    return Section("Fewer bits", MEANING, tables) if tables else None


def _is_tuned(case: Case) -> bool:
    return case._replace(reduction=Config.reduction).is_tuned


def _table(group: Group, cases: Sequence[Case]) -> Table:
    sync_periods = sorted({x.sync_period for x in cases if not x.is_exact})
    found = {(_row(x), x.sync_period): group.cases[x].values() for x in cases}
    ordered = sorted(cases, key=lambda x: list(REDUCTIONS).index(x.reduction))
    rows = [
        [name, *(accuracy_of(found.get((name, tau), ())) for tau in sync_periods)]
        for name in dict.fromkeys(map(_row, ordered))
    ]
    heads = ["Reduction", *(f"τ = {tau}" for tau in sync_periods)]
    return Table(heads, rows, f"{group.title}: {group.setting}")


def _row(case: Case) -> str:
    usual = Config(reduction=case.reduction).reduction_args or {}
    own = [
        "no error feedback" if (name, x) == ("error_feedback", 0) else f"{name} {x:g}"
        for name, x in case.reduction_args
        if usual.get(name) != x
    ]
    return ", ".join([case.reduction, *own])


def main() -> None:
    decided = ("partition", "seed", "reduction", "reduction_args")
    parser = sweep_parser(__doc__, SYNC_PERIODS, without=decided)
    add = parser.add_argument
    add(
        "--reductions",
        nargs="+",
        default=REDUCED,
        choices=REDUCED,
        help="how messages become a mean; %(default)s",
    )
    several = " and ".join(SEVERAL_SEEDS)
    add("--seeds", type=count, default=3, help=f"seeds of {several}; %(default)s")
    run_sweep(parser, runs, lambda args, runs: section(runs), "fewer_bits.md")


if __name__ == "__main__":
    main()
