"""Measures what communication costs on your devices.

    python -m olsgd_jax.bench --cpu-devices 4
    python -m olsgd_jax.bench --model resnet18 --strategies all --json bench.json
    python -m olsgd_jax.bench --cpu-devices 4 --reduction int8
    srun python -m olsgd_jax.bench --model transformer --fsdp 4 --profile trace

Times one local step, the mean alone, and rounds of every strategy with and without
their means; the difference is exposed communication. The model of time predicts each
round from the times of a step, of the model's mean and of the mean of one number. The
command is the same on CPUs, GPUs and TPUs, in one process or in many. Process 0 prints.

Models: small (0.7 million parameters), mlp (18.9), resnet18 (11.2), transformer (98.0).
"""

import argparse
import json
import pathlib
import sys

import jax

from olsgd_jax._checks import check_choice
from olsgd_jax._extras import needs_extra

with needs_extra("train"):
    from rich.console import Console

from olsgd_jax.bench.measure import measure
from olsgd_jax.bench.request import (
    ALL,
    MODELS,
    Request,
    check_fit,
    choose_mesh,
    choose_workload,
    read_strategies,
)
from olsgd_jax.bench.result import to_json
from olsgd_jax.bench.show import show, watching
from olsgd_jax.reductions import REDUCTIONS, SENDING
from olsgd_jax.training.cluster.join import end_together, meet
from olsgd_jax.training.command_line import add_process_options, count, join_as_asked
from olsgd_jax.training.files import writing

STRATEGIES = ["sync_sgd", "local_sgd", "overlap_local_sgd"]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m olsgd_jax.bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add(
        "--strategies",
        nargs="+",
        default=STRATEGIES,
        metavar="NAME",
        help=f"all, or some of {', '.join(ALL)}; default: {' '.join(STRATEGIES)}",
    )
    add(
        "--reduction",
        default="exact",
        metavar="NAME",
        help=f"how messages become a mean, one of {', '.join(SENDING)}; "
        "default: %(default)s",
    )
    add(
        "--sync-period",
        type=count,
        help="local steps in a round; default: the smallest that hides the mean",
    )
    add(
        "--model",
        help=f"one of {', '.join(MODELS)}; default: small on CPUs, mlp elsewhere",
    )
    add(
        "--batch-size",
        type=count,
        help="examples in a worker's batch; default: depends on the model",
    )
    add(
        "--repetitions",
        type=count,
        default=20,
        help="timed rounds of each kind; default: %(default)s",
    )
    add(
        "--workers",
        type=count,
        help="number of workers; default: as many as the devices allow",
    )
    add(
        "--data",
        type=count,
        default=1,
        help="devices of a worker that share a batch; default: 1",
    )
    add(
        "--fsdp",
        type=count,
        default=1,
        help="devices that share the model as well; default: 1",
    )
    add("--cpu-devices", type=count, help="run on this many CPU devices per process")
    add("--json", metavar="FILE", help="write the result to FILE as JSON; - prints it")
    add(
        "--profile",
        type=pathlib.Path,
        metavar="DIR",
        help="write a trace of a few rounds to DIR, for XProf or Perfetto",
    )
    add_process_options(parser)
    return parser


def _prepare(args: argparse.Namespace) -> None:
    """Checks the arguments that can be checked before the processes join."""
    if args.model is not None:
        check_choice("--model", args.model, tuple(MODELS))
    args.strategies = read_strategies(args.strategies)
    check_choice("--reduction", args.reduction, SENDING)
    if args.json not in (None, "-"):
        parent = pathlib.Path(args.json).parent
        if pathlib.Path(args.json).is_dir() or not parent.is_dir():
            raise ValueError(
                f"--json must be a file in a directory that exists, got {args.json}"
            )
    if args.profile is not None:
        with writing(f"--profile {args.profile}"):
            args.profile.mkdir(parents=True, exist_ok=True)


def _request(args: argparse.Namespace) -> Request:
    mesh = choose_mesh(args.workers, args.data, args.fsdp)
    reduction = REDUCTIONS[args.reduction]()
    check_fit(args.strategies, reduction)
    model, workload = choose_workload(args.model, args.batch_size, mesh)
    return Request(
        mesh,
        model,
        workload,
        args.strategies,
        args.sync_period,
        args.repetitions,
        reduction,
    )


def _write(result: dict, file: str) -> None:
    text = json.dumps(result, indent=2, allow_nan=False)
    if file == "-":
        return print(text, flush=True)
    with writing(file):
        pathlib.Path(file).write_text(f"{text}\n", encoding="utf-8")


@end_together()
def main() -> int | str:
    """Runs the command; returns its exit status, or an error message to exit with."""
    parser = _parser()
    args = parser.parse_args()
    try:
        _prepare(args)
        if args.cpu_devices:  # before anything asks for a device
            jax.config.update("jax_platforms", "cpu")
            jax.config.update("jax_num_cpu_devices", args.cpu_devices)
        process = join_as_asked(args)
        request = _request(args)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    is_first = process.id == 0
    console = Console(stderr=args.json == "-", quiet=not is_first)
    with watching(console) as watch:
        found = measure(request, watch, args.profile)
    status = 0
    if is_first:
        show(found, console)
        try:
            if args.json:
                _write(to_json(found), args.json)
        except OSError as error:
            status = str(error)
    meet()  # a process that leaves before the others counts as dead
    return status


if __name__ == "__main__":
    sys.exit(main())
