"""One run: shows and writes its records as they arrive."""

import argparse
from collections.abc import Iterator

import jax
from rich.console import Console

from experiments.cli.output import EVENTS, RECORDS
from experiments.cli.progress import make_progress, shown
from experiments.cli.tensorboard import with_events
from olsgd_jax.training import Components, Config, Entry, describe, write_records


def run(
    config: Config,
    components: Components,
    records: Iterator[Entry],
    args: argparse.Namespace,
    console: Console,
) -> None:
    """Trains until the records end, and writes them."""
    with make_progress(console) as progress:
        task = progress.add_task(
            config.strategy, total=config.num_rounds, shown="compiling"
        )
        records = shown(records, progress, task)
        if args.tensorboard and jax.process_index() == 0:
            records = with_events(records, args.out / EVENTS)
        try:
            facts = describe(config, components)
            write_records(args.out / RECORDS, config, records, facts)
        except FloatingPointError as error:
            if args.on_divergence != "record":
                raise
            progress.print(error, markup=False)
