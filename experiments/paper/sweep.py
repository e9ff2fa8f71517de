"""Sweeps: commands that train many runs and show the results."""

import argparse
import pathlib
from collections.abc import Callable, Iterable, Sequence

import jax
from rich.console import Console
from rich.markdown import Markdown

from experiments.cli.options import (
    add_config_options,
    add_process_options,
    command_parser,
    config_options,
    join_as_asked,
)
from experiments.pages.markdown import to_markdown
from experiments.pages.sections import Section
from experiments.paper.presets import PRESETS, preset
from experiments.paper.runs import run_all
from olsgd_jax.training import Config, Run, end_together, meet, writing
from olsgd_jax.types import Option
from olsgd_jax.workers import share_workers

EVERY = 8  # sync period of strategies that average at every local step


def sweep_parser(
    description: str | None, sync_periods: Sequence[int], without: Sequence[str] = ()
) -> argparse.ArgumentParser:
    """Makes a parser with the options that all sweeps have.

    Args:
      description: help of the command.
      sync_periods: default τ of its runs.
      without: fields of the config that the sweep sets itself, besides strategy and
        sync period.
    """
    parser = command_parser(description)
    add = parser.add_argument
    out = pathlib.Path("out/sweeps")
    add(
        "--out",
        type=pathlib.Path,
        default=out,
        help="directory, which sweeps may share; %(default)s",
    )
    presets = tuple(PRESETS)
    taus = f"local steps in a round, τ; {' '.join(map(str, sync_periods))}"
    add("--preset", choices=presets, default="cpu", help="options to start from; cpu")
    add("--epochs", type=float, help="epochs per run; default: the preset's")
    add("--sync-periods", type=int, nargs="+", default=sync_periods, help=taus)
    decided = ("strategy", "strategy_args", "sync_period", *without)
    add_process_options(parser)
    add_config_options(parser, without=decided, always_preset=True)
    return parser


def preset_of(
    args: argparse.Namespace, strategy: str, sync_period: int, **options: Option
) -> Config:
    """Makes the config of one run of a sweep; options of the command line win."""
    return preset(
        args.preset,
        strategy,
        sync_period,
        epochs=args.epochs,
        **{**options, **config_options(args)},
    )


@end_together()
def run_sweep(
    parser: argparse.ArgumentParser,
    runs: Callable[[argparse.Namespace], list[Config]],
    section: Callable[[argparse.Namespace, Iterable[Run]], Section | None],
    name: str,
) -> None:
    """Trains what the command line asks for, and shows the results.

    Args:
      parser: parser made by `sweep_parser`.
      runs: lists the configs of all runs.
      section: makes the section on the runs; None if they do not suffice.
      name: name of the Markdown file in the sweep's directory.
    """
    args = parser.parse_args()
    try:
        configs = runs(args)
        process = join_as_asked(args)
        with writing(args.out):
            args.out.mkdir(parents=True, exist_ok=True)
        # Before anything asks for a device: afterwards their number is fixed.
        own = [
            share_workers(config.num_workers, process.num_processes)
            for config in configs
        ]
        jax.config.update("jax_num_cpu_devices", max(own))
        console = Console(quiet=process.id > 0)
        done = run_all(configs, args.out, console)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    if process.id == 0:
        text = to_markdown(filter(None, [section(args, done.values())]))
        (args.out / name).write_text(text, encoding="utf-8")
        console.print(Markdown(text))
    meet()
