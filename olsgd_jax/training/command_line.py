"""Options that command lines share: counts, and how processes find each other."""

import argparse

from olsgd_jax._checks import check_count
from olsgd_jax.training.cluster.join import JOIN_TIMEOUT, PEER_TIMEOUT, Process, join


def count(text: str) -> int:
    """Reads a whole number of at least 1, for argparse.

    >>> from olsgd_jax.training import count
    >>> count("12")
    12
    """
    try:
        value = int(text)
        check_count("it", value)
    except ValueError as error:
        message = f"must be a whole number of at least 1, got {text!r}"
        raise argparse.ArgumentTypeError(message) from error
    return value


def add_process_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `join`.

    >>> import argparse
    >>> from olsgd_jax.training import add_process_options
    >>> parser = argparse.ArgumentParser()
    >>> add_process_options(parser)
    >>> parser.parse_args(["--num-processes", "2"]).num_processes
    2
    """
    group = parser.add_argument_group(
        "options of several processes",
        "experiments.launch, SLURM, Open MPI, GKE and Cloud TPU need none of the\n"
        "first three; elsewhere every process needs them all.",
    )
    group.add_argument(
        "--coordinator", metavar="HOST:PORT", help="address of process 0"
    )
    group.add_argument("--num-processes", type=int, help="number of processes")
    group.add_argument("--process-id", type=int, help="number of this one, from 0")
    group.add_argument(
        "--join-timeout",
        type=int,
        default=JOIN_TIMEOUT,
        help="seconds in which all processes must join; %(default)s",
    )
    group.add_argument(
        "--peer-timeout",
        type=int,
        default=PEER_TIMEOUT,
        help="seconds of silence after which a process counts as dead; %(default)s",
    )


def join_as_asked(args: argparse.Namespace) -> Process:
    """Calls `join` with the options of a command line.

    >>> import argparse
    >>> from olsgd_jax.training import add_process_options, join_as_asked
    >>> parser = argparse.ArgumentParser()
    >>> add_process_options(parser)
    >>> join_as_asked(parser.parse_args([]))  # no option: this process is alone
    Process(id=0, num_processes=1)
    """
    return join(
        args.coordinator,
        args.num_processes,
        args.process_id,
        join_timeout=args.join_timeout,
        peer_timeout=args.peer_timeout,
    )
