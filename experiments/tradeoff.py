"""Question: what error does each strategy reach, and in what time?

Run:     python -m experiments.tradeoff --preset cpu --out out/tradeoff
Cost:    hours at the scale of 2 CPU cores; stopped, it goes on where it was
Answer:  a table in out/tradeoff/tradeoff.md

Devices of one machine have no network between them, so time is counted in local steps:
one mean of a whole model costs --mean-cost of them, by default what the paper measured
for fully synchronous SGD, and a mean of fewer bytes as much less. A delayed mean costs
what the local steps of its round do not cover.
"""

import argparse

from experiments.paper import NAMES
from experiments.sweep import preset_of, run_sweep, sweep_parser
from experiments.tables import accuracy_of
from olsgd_jax import Config, Run
from olsgd_jax.build import build_strategy

SYNC_PERIODS, RANKS = (1, 2, 4, 8, 24), (1, 2, 4, 8)
MEAN_COST = 0.346  # local steps: the paper's ratio of communication to computation


def runs(args: argparse.Namespace) -> dict[str, Config]:
    """Names all runs of the figure."""
    configs = {}
    for tau in args.sync_periods:
        for strategy in ("local_sgd", "overlap_local_sgd"):
            configs[f"{strategy}-{tau}"] = preset_of(args, strategy, tau)
    # These average gradients at every step; their rounds only say when to look.
    for rank in args.ranks:
        configs[f"powersgd-{rank}"] = preset_of(
            args, "powersgd", 8, strategy_args={"rank": rank}
        )
    configs["sync_sgd"] = preset_of(args, "sync_sgd", 8)
    return configs


def relative_time(run: Run, mean_cost: float) -> float:
    """Gives the time of a run in that of its local steps alone.

    Args:
      run: with the facts of its config.
      mean_cost: of one mean of a whole model, in local steps.
    """
    if run.facts is None:
        raise ValueError("run must have facts, got None; train it with a newer version")
    config = Config(**run.config)
    strategy = build_strategy(config, lambda step: 1.0)
    models_per_round = run.facts["bytes_per_round"] / (4 * run.facts["num_parameters"])
    cost = mean_cost * models_per_round / config.sync_period  # per local step
    return 1 + (max(0.0, cost - 1) if strategy.mean_of == "start" else cost)


def write_table(args: argparse.Namespace, runs: dict[str, Run]) -> str:
    """Writes accuracy and time of every run to a file, and returns what is in it."""
    lines = [
        "Time in that of the local steps alone, where one mean of a model costs "
        f"{args.mean_cost:g} of a local step; test accuracy in percent.",
        "",
        "| strategy | τ | rank | time | accuracy |",
        "| --- | --- | --- | --- | --- |",
    ]
    for run in runs.values():
        config = Config(**run.config)
        rank = (config.strategy_args or {}).get("rank", "—")
        every_step = config.strategy in ("sync_sgd", "powersgd")
        tau = 1 if every_step else config.sync_period
        time, accuracy = relative_time(run, args.mean_cost), accuracy_of([run])
        name = NAMES[config.strategy]
        lines.append(f"| {name} | {tau} | {rank} | {time:.3f} | {accuracy} |")
    text = "\n".join(lines) + "\n"
    (args.out / "tradeoff.md").write_text(text, encoding="utf-8")
    return text


def main() -> None:
    parser = sweep_parser(__doc__, "out/tradeoff")
    parser.add_argument(
        "--sync-periods", type=int, nargs="+", default=SYNC_PERIODS, help="τ"
    )
    parser.add_argument(
        "--ranks", type=int, nargs="*", default=RANKS, help="of PowerSGD"
    )
    parser.add_argument(
        "--mean-cost", type=float, default=MEAN_COST, help="of a model, in local steps"
    )
    run_sweep(parser, runs, write_table)


if __name__ == "__main__":
    main()
