r"""Question: how well does one run train?

Run:     python -m experiments.train --preset cpu --strategy overlap_local_sgd \
             --sync-period 8 --partition paper_non_iid --seed 0 --out out/train
Cost:    --dry-run estimates it for any run
Answer:  records in out/train/run.jsonl, and a report about them next to it

On CPUs, every worker has its own device. With several processes, each has its share of
the workers, and process 0 writes and prints.

--resume continues a stopped run, with the same records and the same model as if it had
not been stopped. It may continue with another --num-workers or --mapping, on other
devices, or with another number of processes; the records say so.

On SIGTERM or SIGINT, the run finishes its round, saves a checkpoint and exits with
status 75; a second SIGINT ends it at once. It is enough if one of several processes
receives the signal.
"""

import argparse
import contextlib
import sys
from collections.abc import Iterator

import jax
from rich.console import Console

from experiments.cli.diverging import add_divergence_options, rollbacks_of
from experiments.cli.dry_run import check_resume, describe_run
from experiments.cli.options import (
    add_config_options,
    add_process_options,
    command_parser,
    config_options,
    count,
    join_as_asked,
)
from experiments.cli.output import (
    EVENTS,
    RECORDS,
    add_output_options,
    check_output,
    delete_events,
    describe_start,
    describe_stop,
    open_checkpoints,
    prepare_output,
)
from experiments.cli.progress import make_progress, shown
from experiments.cli.tensorboard import with_events
from experiments.language.presets import NANOGPT, nanogpt
from experiments.paper.presets import PRESETS, preset
from olsgd_jax.training import (
    Components,
    Config,
    Due,
    Entry,
    PreemptedError,
    Preemption,
    build,
    describe,
    end_together,
    meet,
    outline_dataset,
    train,
    write_records,
)
from olsgd_jax.workers import share_workers


def resolve(args: argparse.Namespace) -> Config:
    """Makes the config that a command line asks for."""
    options = config_options(args)
    if args.preset in NANOGPT:
        if args.epochs is not None:
            raise ValueError(
                f"--epochs must be left out with --preset {args.preset}, whose length "
                f"is in local steps, got {args.epochs:g}; use --num-rounds"
            )
        return nanogpt(args.preset, **options)
    if args.preset:
        return preset(args.preset, epochs=args.epochs, **options)
    if args.epochs is not None:
        raise ValueError("--epochs needs a --preset; without one, use --num-rounds")
    return Config(**options)


def make_parser() -> argparse.ArgumentParser:
    parser = command_parser(__doc__)
    add = parser.add_argument
    names = *PRESETS, *NANOGPT
    add("--preset", choices=names, help="options to start from; default: none")
    epochs = "epochs of a preset for images; sets the number of rounds"
    add("--epochs", type=float, help=epochs)
    add(
        "--dry-run",
        action="store_true",
        help="train nothing; print what would run and roughly how long it would take, "
        "or why it would not start. Reads no data and changes no file. In one process, "
        "checks the checkpoints that --resume would use",
    )
    add("--tensorboard", action="store_true", help="also write events to OUT/events")
    add("--cpu-devices", type=count, help="per process; default: one for each worker")
    add_output_options(parser)
    add_divergence_options(parser)
    add_process_options(parser)
    add_config_options(parser)
    return parser


def train_as_asked(
    config: Config,
    components: Components,
    preempted: Preemption,
    parser: argparse.ArgumentParser,
    args: argparse.Namespace,
    console: Console,
) -> int | str:
    """Trains; returns the exit status, or an error message instead."""
    with contextlib.ExitStack() as stack:
        try:
            due, rollbacks = Due(args.save_every, args.save_minutes), rollbacks_of(args)
            prepare_output(args)
            checkpoints = stack.enter_context(open_checkpoints(args, console))
            records = train(
                config,
                components,
                checkpoints=checkpoints,
                due=due,
                preempted=preempted,
                rollbacks=rollbacks,
            )
            if args.resume:
                console.print(describe_start(checkpoints))
        except (ValueError, OSError) as error:
            parser.error(str(error))
        try:
            write(config, components, records, args, console)
            if jax.process_index() == 0:
                show(config, args, console)
        except FloatingPointError as error:
            return str(error)
        except PreemptedError as error:
            return describe_stop(error, args, console)
        except OSError as error:
            sys.exit(str(error))  # others may not know of it, and wait for this process
    return 0


def write(
    config: Config,
    components: Components,
    records: Iterator[Entry],
    args: argparse.Namespace,
    console: Console,
) -> None:
    """Writes and shows records as they arrive, which trains the run."""
    with make_progress(console) as progress:
        task = progress.add_task(
            config.strategy, total=config.num_rounds, shown="compiling"
        )
        records = shown(records, progress, task)
        if jax.process_index() == 0:
            delete_events(args.out)
            if args.tensorboard:
                records = with_events(records, args.out / EVENTS)
        try:
            facts = describe(config, components)
            write_records(args.out / RECORDS, config, records, facts)
        except FloatingPointError as error:
            if args.on_divergence != "record":
                raise
            progress.print(error, markup=False)


def check_as_asked(
    config: Config, components: Components, args: argparse.Namespace
) -> list[str]:
    """Raises what `train_as_asked` would, but changes nothing on disk.

    Returns:
      What the run would print about its checkpoints.
    """
    Due(args.save_every, args.save_minutes)
    rollbacks = rollbacks_of(args)
    check_output(args)
    if args.resume and jax.process_count() == 1:
        return check_resume(config, components, rollbacks, args)
    return []


def show(config: Config, args: argparse.Namespace, console: Console) -> None:
    """Writes a page about the run."""
    # Imported late: matplotlib is slow to load, and most processes draw no figure.
    from experiments.report import write_report

    page = args.out / "report.html"
    title = f"{config.strategy} on {config.dataset}"
    write_report(page, [args.out / RECORDS], title)
    console.print(f"Report: {page.resolve()}", soft_wrap=True)


@end_together()
def main() -> int | str | None:
    parser = make_parser()
    args = parser.parse_args()
    try:
        config = resolve(args)
        process = join_as_asked(args)
        own = share_workers(config.num_workers, process.num_processes)
        # Before anything uses a device: afterwards their number is fixed.
        jax.config.update("jax_num_cpu_devices", args.cpu_devices or own)
        outline = outline_dataset(config.dataset) if args.dry_run else None
        components = build(config, outline)
        said = check_as_asked(config, components, args) if args.dry_run else []
    except (ValueError, OSError) as error:
        parser.error(str(error))
    console = Console(quiet=process.id > 0)
    if args.dry_run:
        for text in said:
            console.print(text, markup=False, soft_wrap=True)
        return describe_run(config, components, console)
    with Preemption() as preempted:
        status = train_as_asked(config, components, preempted, parser, args, console)
        meet()
    return status


if __name__ == "__main__":
    sys.exit(main())
