"""One run: its records, shown and written as they come, and a page about them."""

import argparse
from collections.abc import Iterator

import jax
from rich.console import Console

from experiments.cli.output import EVENTS, RECORDS
from experiments.cli.progress import make_progress, shown
from experiments.cli.tensorboard import with_events
from experiments.report import write_report
from olsgd_jax.training import Components, Config, Entry, describe, write_records


def run(
    config: Config,
    components: Components,
    records: Iterator[Entry],
    args: argparse.Namespace,
    console: Console,
) -> None:
    """Trains as far as there are records, writes them, and a page."""
    file, is_first = args.out / RECORDS, jax.process_index() == 0
    with make_progress(console) as progress:
        task = progress.add_task(
            config.strategy, total=config.num_rounds, shown="compiling"
        )
        records = shown(records, progress, task)
        if args.tensorboard and is_first:
            records = with_events(records, args.out / EVENTS)
        try:
            write_records(file, config, records, describe(config, components))
        except FloatingPointError as error:
            if args.on_divergence != "record":
                raise
            progress.print(error, markup=False)
    if not is_first:
        return
    write_report(
        args.out / "report.html", [file], f"{config.strategy} on {config.dataset}"
    )
    console.print(f"Report: {(args.out / 'report.html').resolve()}", soft_wrap=True)
