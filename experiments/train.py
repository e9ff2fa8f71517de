"""Question: what does one run give?

Run:     python -m experiments.train --preset cpu --strategy overlap_local_sgd \
             --sync-period 8 --partition paper_non_iid --seed 0 --out out/train
Cost:    --dry-run says it for any run
Answer:  records in out/train/run.jsonl, and a page about them beside it

Without --preset the options of the run are those of `Config`; with it, those that are
given stand instead of the preset's. On CPUs every worker is a device of its own. In
several processes, each with its share of the workers, process 0 writes and prints.
"""

import argparse
import dataclasses
import pathlib
import sys
import time

import jax
from rich.console import Console
from rich.table import Table

from experiments.options import (
    add_config_options,
    add_process_options,
    config_options,
    join_as_asked,
)
from experiments.presets import PRESETS, preset
from experiments.progress import make_progress, shown
from experiments.report import write_report
from experiments.tensorboard import with_events
from olsgd_jax import Config, describe, meet, train, write_records
from olsgd_jax.build import Parts, build
from olsgd_jax.mesh import share_workers

PROBE = 8  # examples whose gradient is timed for an estimate


def resolve(args: argparse.Namespace) -> Config:
    """Makes the config that a command line asks for."""
    options = config_options(args)
    if args.preset:
        return preset(args.preset, epochs=args.epochs, **options)
    if args.epochs is not None:
        raise ValueError("--epochs needs a --preset; without one, use --num-rounds")
    return Config(**options)


def describe_run(config: Config, parts: Parts, console: Console) -> None:
    """Prints what would run, and about how long."""
    facts = describe(config, parts)
    table = Table("Option", "Value", title="What would run")
    for name, value in dataclasses.asdict(config).items():
        table.add_row(name, str(value))
    console.print(table)
    console.print(
        f"{facts.num_parameters:,} parameters; a worker sends "
        f"{facts.bytes_per_round:,} bytes per round; {facts.num_steps:,} local steps, "
        f"{facts.num_epochs:.1f} epochs"
    )
    with console.status("timing a gradient"):
        seconds = estimate(config, parts, facts.num_steps)
    console.print(f"About {_words(seconds)}, from the gradient of {PROBE} examples")


def estimate(config: Config, parts: Parts, num_steps: int) -> float:
    """Estimates the seconds of a run from the time of one gradient.

    CPU devices share the machine; others work side by side.
    """
    batch = {
        "inputs": parts.dataset.train_inputs[:PROBE],
        "labels": parts.dataset.train_labels[:PROBE],
    }
    grad = jax.jit(jax.grad(parts.task.loss, has_aux=True))
    model = parts.task.init(jax.random.key(0))
    times = []
    for _ in range(4):
        start = time.perf_counter()
        jax.block_until_ready(grad(*model, batch, jax.random.key(0)))
        times.append(time.perf_counter() - start)
    examples = num_steps * config.batch_size * config.num_workers
    if parts.mesh is not None and jax.devices()[0].platform != "cpu":
        examples /= config.num_workers
    return min(times) / PROBE * examples


def _words(seconds: float) -> str:
    for unit, size in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} seconds"


def run(
    config: Config, parts: Parts, args: argparse.Namespace, console: Console
) -> None:
    """Trains, and writes records and a page."""
    file, is_first = args.out / "run.jsonl", jax.process_index() == 0
    with make_progress(console) as progress:
        task = progress.add_task(
            config.strategy, total=config.num_rounds, shown="compiling"
        )
        records = shown(train(config, parts), progress, task)
        if args.tensorboard and is_first:
            records = with_events(records, args.out / "events")
        write_records(file, config, records, describe(config, parts))
    if not is_first:
        return
    write_report(
        args.out / "report.html", [file], f"{config.strategy} on {config.dataset}"
    )
    console.print(f"Report: {(args.out / 'report.html').resolve()}", soft_wrap=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--preset", choices=tuple(PRESETS), help="options to begin with"
    )
    parser.add_argument("--epochs", type=float, help="of a preset; rounds follow")
    parser.add_argument(
        "--out", type=pathlib.Path, default=pathlib.Path("out/train"), help="directory"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="say what would run, and how long"
    )
    parser.add_argument(
        "--tensorboard", action="store_true", help="write event files to OUT/events too"
    )
    parser.add_argument(
        "--cpu-devices", type=int, help="of a process; by default one for each worker"
    )
    add_process_options(parser)
    add_config_options(parser)
    args = parser.parse_args()
    try:
        config = resolve(args)
        process = join_as_asked(args)
        own = share_workers(config.num_workers, process.num_processes)
        # Before anything asks for a device: afterwards their number is fixed.
        jax.config.update("jax_num_cpu_devices", args.cpu_devices or own)
        parts = build(config)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    console = Console(quiet=process.id > 0)
    if args.dry_run:
        return describe_run(config, parts, console)
    try:
        run(config, parts, args, console)
    except FloatingPointError as error:
        sys.exit(str(error))
    meet()


if __name__ == "__main__":
    main()
