"""Question: up to what scale can communication be hidden, and by which τ?

Run:     python -m experiments.scale
Cost:    15 seconds (2 CPU cores)
Answer:  as long as the local steps take as long as the mean. With 1 B parameters,
         10 Gbit and τ = 8, up to 10,000 workers compute 89 to 99 % of the time; with
         Local SGD 45 to 52 %, with synchronous SGD 10 to 12 %. Hiding the mean of 1 B
         takes τ = 1 or 2 on 400 Gbit, 7 to 19 on 10 Gbit, 693 to 3,047 on 100 Mbit;
         of 100 B, 12 or 13, 444 to 481, and more than 44,000. out/scale/scale.md has
         all numbers.

All times are modelled (`olsgd_jax.timing`), not measured. A local step takes

    batch size × flops per example / (accelerators × flops × utilisation)

plus a random delay with a mean of --stragglers times that. A worker may be a group of
accelerators; it has one link to the others. A mean uses a ring or a tree, whichever is
faster. Neither knows about racks, and the tree is not pipelined: with small models and
many workers, a good library needs less time. The assumptions about models and links are
in `assumptions`, and are printed.
"""

import argparse
import dataclasses
import json
import pathlib
import time
from collections.abc import Sequence

from rich.console import Console
from rich.markdown import Markdown

from experiments.cli.options import command_parser
from experiments.pages.drawing import save
from experiments.pages.markdown import to_markdown
from experiments.pages.sections import Section, named_pictures
from experiments.planning.assumptions import LINKS, MODELS, step_seconds
from experiments.planning.scale_figure import Row, section
from olsgd_jax import local_sgd, overlap_local_sgd, sync_sgd
from olsgd_jax.timing import (
    Ring,
    RingOrTree,
    Setting,
    ShiftedExponential,
    round_time,
    simulate,
    smallest_hiding_period,
    with_stragglers,
)
from olsgd_jax.training import commit, versions, writing

NUM_WORKERS = (16, 128, 1_024, 10_000, 100_000)
NUM_ROUNDS, LANES = 50, 16_000  # simulated: rounds in a row, and workers side by side


def row_of(model: str, link: str, num_workers: int, args: argparse.Namespace) -> Row:
    """Models the times of all strategies for one model, link and number of workers."""
    own = MODELS[model]
    if args.batch_size is not None:
        own = own._replace(batch_size=args.batch_size)
    step = step_seconds(own, args.flops, args.utilisation)
    network = RingOrTree(*LINKS[link])
    overlap = Setting(
        overlap_local_sgd(pullback=0.6),
        args.sync_period,
        own.num_bytes,
        num_workers,
        with_stragglers(step, args.stragglers),
        network,
    )
    every_step = args.sync_period * own.num_bytes
    settings = (
        dataclasses.replace(overlap, strategy=sync_sgd(), bytes_per_round=every_step),
        dataclasses.replace(overlap, strategy=local_sgd()),
        overlap,
    )
    return {
        "model": model,
        **own._asdict(),
        "step_seconds": step,
        "link": link,
        **LINKS[link]._asdict(),
        "num_workers": num_workers,
        "reduction": type(network.faster(own.num_bytes, num_workers)).__name__.lower(),
        "mean_seconds": overlap.mean_seconds,
        "utilisation": {
            setting.strategy.name: round_time(
                setting,
                num_rounds=NUM_ROUNDS,
                repetitions=max(1, LANES // num_workers),
                seed=args.seed,
            ).utilisation
            for setting in settings
        },
        "hiding_period": smallest_hiding_period(overlap),
    }


def simulation_rate() -> float:
    """Measures how many worker-rounds are simulated per second."""
    compute, network = ShiftedExponential(1.0, 0.1), Ring(1e9)
    strategy = overlap_local_sgd(pullback=0.6)
    setting = Setting(strategy, 8, 1e9, 1_000, compute, network)
    start = time.perf_counter()
    simulate(setting, num_rounds=100, repetitions=10)
    return 100 * 10 * 1_000 / (time.perf_counter() - start)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = command_parser(__doc__)
    add = parser.add_argument
    add(
        "--out",
        type=pathlib.Path,
        default=pathlib.Path("out/scale"),
        help="directory; %(default)s",
    )
    add(
        "--num-workers",
        type=int,
        nargs="+",
        default=NUM_WORKERS,
        help=f"numbers of workers, m; {' '.join(map(str, NUM_WORKERS))}",
    )
    add(
        "--sync-period",
        type=int,
        default=8,
        help="local steps in a round, τ; %(default)s",
    )
    add("--batch-size", type=int, help="examples per local step; default: the model's")
    add(
        "--flops",
        type=float,
        default=312e12,
        help="peak of one accelerator, in flop/s; %(default)g",
    )
    add(
        "--utilisation",
        type=float,
        default=0.4,
        help="fraction of the peak reached; %(default)s",
    )
    add(
        "--stragglers",
        type=float,
        default=0.1,
        help="mean delay, in local steps; %(default)s",
    )
    add("--seed", type=int, default=0, help="random seed; %(default)s")
    args = parser.parse_args(arguments)
    try:
        rows = [
            row_of(model, link, num_workers, args)
            for model in MODELS
            for link in LINKS
            for num_workers in args.num_workers
        ]
    except ValueError as error:
        parser.error(str(error))
    options = {**vars(args), "out": str(args.out)}
    modelled = {"options": options, "rows": rows, "versions": versions()}
    text = json.dumps({**modelled, "commit": commit()}, indent=1)
    sections = [section(rows, options)]
    try:
        with writing(args.out):
            args.out.mkdir(parents=True, exist_ok=True)
            (args.out / "scale.json").write_text(text + "\n", encoding="utf-8")
            _write_figures(sections, args.out)
    except OSError as error:
        parser.error(str(error))
    console = Console()
    console.print(Markdown(to_markdown(sections)))
    console.print(f"Simulated worker-rounds per second: {simulation_rate():,.0f}")


def _write_figures(sections: Sequence[Section], out: pathlib.Path) -> None:
    """Writes the figures, and the Markdown that shows them."""
    images = {}
    for name, picture in named_pictures(sections):
        save(picture.figure, out / name)
        images[name] = f"{name}.svg"
    text = to_markdown(sections, images)
    (out / "scale.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
