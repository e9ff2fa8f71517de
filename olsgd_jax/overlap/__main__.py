"""Compiles a round for accelerators that you do not have, and reports what overlaps.

    python -m olsgd_jax.overlap --target h100:1x1x8 --model resnet18 --sync-period 4
    python -m olsgd_jax.overlap --target all --step    # a step of the optax face
    python -m olsgd_jax.overlap --target all --json

Models: mlp (18.9 million parameters), resnet18 (11.2) and transformer (98.0). The exit
status is 0 if at least 99 % of the bytes sent between workers overlap on every target.
"""

import argparse
import json
import sys

import jax

from olsgd_jax._extras import needs_extra

with needs_extra("aot"):
    from rich.console import Console
    from rich.table import Column, Table

from olsgd_jax.aot.measure import Setting, measure
from olsgd_jax.aot.targets import TARGETS
from olsgd_jax.aot.workloads import WORKLOADS
from olsgd_jax.reductions import REDUCTIONS


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m olsgd_jax.overlap",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    option = parser.add_argument
    option(
        "--target",
        default="all",
        help=f"all, or one of {', '.join(TARGETS)}, with or without a topology, "
        "as in h100:1x1x8; %(default)s",
    )
    option("--model", default="mlp", help=f"one of {', '.join(WORKLOADS)}; %(default)s")
    option(
        "--strategy",
        default="overlap_local_sgd",
        help="name of the strategy; %(default)s",
    )
    option(
        "--reduction",
        default="exact",
        help=f"one of {', '.join(REDUCTIONS)}; %(default)s",
    )
    option(
        "--sync-period", type=int, default=4, help="local steps in a round; %(default)s"
    )
    option(
        "--stream", action="store_true", help="send a fragment with every local step"
    )
    option(
        "--step",
        action="store_true",
        help="compile a train step of the optax face (distribute) instead of a round",
    )
    option(
        "--form",
        default="chosen",
        help="chosen: form and compiler options chosen for the target; "
        "tree: a mean of each array, with the compiler's defaults; %(default)s",
    )
    option(
        "--worker-devices", type=int, default=1, help="devices per worker; %(default)s"
    )
    option(
        "--share",
        default="data",
        choices=("data", "fsdp"),
        help="what the devices of a worker share: batches, or batches and the model; "
        "%(default)s",
    )
    option(
        "--compare",
        action="store_true",
        help="also compile the round without its mean, to compare memory and time",
    )
    option("--json", action="store_true", help="print one line of JSON per target")
    return parser


def _row(result: dict) -> list[str]:
    """Writes a result as a row of the table."""
    both = [result, result["without_mean"]] if "without_mean" in result else [result]
    return [
        result["target"],
        f"{result['mean_bytes'] / 1e6:.1f}",
        f"{result['overlapped_fraction']:.2%}",
        " / ".join(f"{x['temporary_bytes'] / x['parameter_bytes']:.2f}" for x in both),
        " / ".join(f"{x['compile_seconds']:.0f}" for x in both),
    ]


def main() -> int:
    """Runs the command and returns its exit status."""
    parser = _parser()
    args = parser.parse_args()
    # Eager operations run on the CPU; the targets' compilers need no backend.
    jax.config.update("jax_platforms", "cpu")
    console = Console()
    results = []
    try:
        for name in TARGETS if args.target == "all" else [args.target]:
            setting = Setting(
                target=name,
                model=args.model,
                strategy=args.strategy,
                sync_period=args.sync_period,
                reduction=args.reduction,
                stream=args.stream,
                form=args.form,
                step=args.step,
                **{args.share: args.worker_devices},
            )
            with console.status(f"compiling {args.model} for {name}"):
                results.append(measure(setting, args.compare))
            if args.json:
                print(json.dumps(results[-1]), flush=True)
    except (ValueError, ModuleNotFoundError) as error:
        parser.error(str(error))
    if not args.json:
        both = ", with / without the mean" if args.compare else ""
        heads = ("target", "MB sent", "overlapped")
        heads += (f"temporaries in models{both}", f"processor seconds to compile{both}")
        columns = [Column(head, justify="right") for head in heads]
        what = "one of" if args.step else "a round of"
        of = f"{args.model}, {args.strategy}, {args.reduction}"
        title = f"{of}, {what} {args.sync_period} local steps"
        table = Table(*columns, title=title)
        for result in results:
            table.add_row(*_row(result))
        console.print(table)
    return 0 if all(x["overlapped_fraction"] >= 0.99 for x in results) else 1


if __name__ == "__main__":
    sys.exit(main())
