"""Question: how far should a mix pull workers to the anchor?

Run:     python -m experiments.alpha_sweep --preset cpu --out out/alpha_sweep
Cost:    hours at the scale of 2 CPU cores; stopped, it goes on where it was
Answer:  a table of accuracies in out/alpha_sweep/alpha_sweep.md, over the pullback α
         and the sync period τ; the paper found α = 0.6 best for every τ from 2 on
"""

import argparse
import itertools

from experiments.sweep import preset_of, run_sweep, sweep_parser
from experiments.tables import accuracy_of
from olsgd_jax import Config, Run

PULLBACKS, SYNC_PERIODS = (0.2, 0.4, 0.6, 0.8, 1.0), (2, 8, 24)


def runs(args: argparse.Namespace) -> dict[str, Config]:
    """Names all runs of the table."""
    return {
        f"{pullback:g}-{tau}": preset_of(
            args,
            "overlap_local_sgd",
            tau,
            strategy_args={"pullback": pullback, "anchor_momentum": 0.7},
        )
        for pullback, tau in itertools.product(args.pullbacks, args.sync_periods)
    }


def write_table(args: argparse.Namespace, runs: dict[str, Run]) -> str:
    """Writes the accuracies to a file, and returns what is in it."""
    lines = ["| α | " + " | ".join(f"τ = {tau}" for tau in args.sync_periods) + " |"]
    lines.append("| --- |" + " --- |" * len(args.sync_periods))
    for pullback in args.pullbacks:
        row = [accuracy_of([runs[f"{pullback:g}-{tau}"]]) for tau in args.sync_periods]
        lines.append(f"| {pullback:g} | {' | '.join(row)} |")
    text = "\n".join(["Test accuracy in percent.", "", *lines]) + "\n"
    (args.out / "alpha_sweep.md").write_text(text, encoding="utf-8")
    return text


def main() -> None:
    parser = sweep_parser(__doc__, "out/alpha_sweep")
    parser.add_argument(
        "--pullbacks", type=float, nargs="+", default=PULLBACKS, help="α"
    )
    parser.add_argument(
        "--sync-periods", type=int, nargs="+", default=SYNC_PERIODS, help="τ"
    )
    run_sweep(parser, runs, write_table)


if __name__ == "__main__":
    main()
