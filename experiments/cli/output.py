"""The directory that a run writes to, and how a later run continues or replaces it."""

import argparse
import contextlib
import logging
import os
import pathlib
import secrets
import shutil

import jax
import numpy as np
from jax.experimental import multihost_utils
from rich.console import Console

from experiments.cli.options import count
from olsgd_jax.training import RESUMABLE, Checkpoints, PreemptedError, writing

RECORDS, EVENTS, CHECKPOINTS = "run.jsonl", "events", "checkpoints"


def add_output_options(parser: argparse.ArgumentParser) -> None:
    """Adds options for where a run is written and how it is resumed."""
    group = parser.add_argument_group("output")
    add, out = group.add_argument, pathlib.Path("out/train")
    add("--out", type=pathlib.Path, default=out, help="directory; %(default)s")
    either = group.add_mutually_exclusive_group().add_argument
    either("--resume", action="store_true", help="continue the run in OUT, if any")
    either("--overwrite", action="store_true", help="delete the run in OUT, if any")
    add("--save-every", type=int, help="rounds between checkpoints; default: by time")
    minutes = "minutes between checkpoints; %(default)g"
    add("--save-minutes", type=float, default=10.0, help=minutes)
    keep = "number of newest checkpoints to keep besides the best; %(default)s"
    add("--keep", type=count, default=2, help=keep)


def check_output(args: argparse.Namespace) -> None:
    """Raises if the directory holds a run that must not be touched."""
    try:
        str(args.out).encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"--out must be a name in UTF-8, got {str(args.out)!r}; use another one"
        ) from error
    there = _outputs(args)
    if there and not (args.resume or args.overwrite):
        raise ValueError(
            f"--out must not hold a run yet, got {args.out}, which has "
            f"{there[0].name}; --resume continues it, --overwrite deletes it"
        )
    for path in there:
        if path.is_symlink() and not args.overwrite:
            raise ValueError(
                f"--out must hold no links, got {path}, which leads to "
                f"{path.resolve()}; delete it, or write to where it leads"
            )


def prepare_output(args: argparse.Namespace) -> None:
    """Makes room for a run; raises if the directory holds one that must stay."""
    if jax.process_index() > 0:  # process 0 checks for all
        return
    check_output(args)
    if args.overwrite:
        for path in _outputs(args):
            _delete(path)
    with writing(args.out):
        args.out.mkdir(parents=True, exist_ok=True)


def delete_events(out: pathlib.Path) -> None:
    """Deletes the events of a run that starts; they are rewritten, as records are."""
    if os.path.lexists(out / EVENTS):
        _delete(out / EVENTS)


def open_checkpoints(
    args: argparse.Namespace, console: Console
) -> contextlib.AbstractContextManager[Checkpoints | None]:
    """Opens the checkpoints of a run; None if processes share no directory."""
    if jax.process_count() > 1 and not _is_shared(args.out):
        console.print(
            f"No checkpoints: {args.out.resolve()} is not the same directory in all "
            "processes"
        )
        return contextlib.nullcontext()
    silence_orbax()
    return Checkpoints(args.out / CHECKPOINTS, args.keep)


def silence_orbax() -> None:
    """Keeps orbax from logging, with traceback, the errors that it also raises."""
    logging.getLogger("absl").addFilter(_is_not_of_orbax)


def describe_start(checkpoints: Checkpoints | None) -> str:
    """Describes from which round a run resumes."""
    numbers = [] if checkpoints is None else checkpoints.numbers()
    if not numbers:
        return "No checkpoint to resume from: starting a new run"
    return f"Resuming after round {numbers[0]}"


def describe_stop(
    stop: PreemptedError, args: argparse.Namespace, console: Console
) -> int:
    """Prints how to resume a run that was asked to stop; returns its exit status."""
    if not stop.is_saved:
        console.print(f"Stopped after round {stop.round}. Nothing was saved")
        return 1
    console.print(
        f"Stopped after round {stop.round}, which is saved in {args.out}; run the same "
        "command with --resume to continue",
        soft_wrap=True,
    )
    return RESUMABLE


def _outputs(args: argparse.Namespace) -> list[pathlib.Path]:
    """Lists the outputs of a run that exist."""
    paths = [args.out / name for name in (RECORDS, EVENTS, CHECKPOINTS)]
    return [path for path in paths if os.path.lexists(path)]


def _delete(path: pathlib.Path) -> None:
    """Deletes a file, a directory, or a link, whose target stays."""
    is_directory = path.is_dir() and not path.is_symlink()
    shutil.rmtree(path) if is_directory else path.unlink()


def _is_not_of_orbax(record: logging.LogRecord) -> bool:
    return "orbax" not in record.pathname


def _is_shared(directory: pathlib.Path) -> bool:
    """Tells whether all processes see a file that process 0 creates there."""
    number = np.array(secrets.randbelow(2**31), np.int32)
    number = int(multihost_utils.broadcast_one_to_all(number))
    file = directory / f".shared-{number}"
    if jax.process_index() == 0:
        file.touch()
    multihost_utils.sync_global_devices("a file is there")
    seen = multihost_utils.process_allgather(np.array(file.exists(), np.int32))
    if jax.process_index() == 0:
        file.unlink()
    return bool(np.all(seen))
