"""Compiles a round for accelerators that are not here, and says what overlaps.

    python -m olsgd_jax.overlap --target h100:1x1x8 --sync-period 4
    python -m olsgd_jax.overlap --target all --json

The network has four hidden layers of 2,048 units, 18.9 million parameters. The exit
status is 0 if at least 0.99 of the bytes overlap on every target.
"""

import argparse
import json
import sys
import time
from typing import cast

import jax
from jax.stages import Wrapped
from rich.console import Console
from rich.table import Column, Table

from olsgd_jax.build import build_strategy
from olsgd_jax.checks import check_choice
from olsgd_jax.config import Config
from olsgd_jax.drivers.make_round import make_round
from olsgd_jax.overlap.report import overlap_report
from olsgd_jax.overlap.targets import TARGETS, target
from olsgd_jax.overlap.workload import OPTIMIZER, arguments, loss
from olsgd_jax.strategies import STRATEGIES
from olsgd_jax.task import plain_loss


def measure(name: str, strategy_name: str, sync_period: int, stream: bool) -> dict:
    """Compiles one round for one target, and reads its schedule."""
    mesh = target(name)
    strategy = build_strategy(Config(strategy=strategy_name, num_workers=mesh.size))
    run = make_round(
        plain_loss(loss),
        OPTIMIZER,
        strategy,
        sync_period=sync_period,
        mesh=mesh,
        stream=stream,
    )
    state, batches = arguments(mesh, strategy, sync_period)
    lowered = cast(Wrapped, run).lower(state, batches)
    began = time.perf_counter()
    compiled = lowered.compile()
    report, memory = overlap_report(compiled), compiled.memory_analysis()
    assert memory is not None  # for these compilers
    sizes = [
        x.size // mesh.size * x.dtype.itemsize for x in jax.tree.leaves(state.params)
    ]
    return {
        "target": name,
        "strategy": strategy_name,
        "sync_period": sync_period,
        "mean_bytes": report.mean_bytes,
        "overlapped_bytes": report.overlapped_bytes,
        "overlapped_fraction": report.overlapped_fraction,
        "parameter_bytes": sum(sizes),
        "temporary_bytes": memory.temp_size_in_bytes,
        "compile_seconds": round(time.perf_counter() - began, 1),
        "collectives": [x._asdict() for x in report.collectives],
    }


def row(result: dict) -> list[str]:
    """Writes a result as a row of the table."""
    return [
        result["target"],
        f"{result['mean_bytes'] / 1e6:.1f}",
        f"{result['overlapped_fraction']:.1%}",
        f"{result['temporary_bytes'] / result['parameter_bytes']:.1f}",
        f"{result['compile_seconds']:.0f}",
    ]


def main() -> int:
    """Runs the command; gives its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m olsgd_jax.overlap",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    known = ", ".join(TARGETS)
    parser.add_argument("--target", default="all", help=f"all, or one of {known}")
    parser.add_argument("--strategy", default="overlap_local_sgd", help="its name")
    parser.add_argument("--sync-period", type=int, default=4, help="local steps")
    parser.add_argument("--stream", action="store_true", help="send with every step")
    parser.add_argument("--json", action="store_true", help="a line of JSON per target")
    args = parser.parse_args()
    # For what runs here; the targets' compilers need no backend.
    jax.config.update("jax_platforms", "cpu")
    console = Console()
    results = []
    try:
        check_choice("strategy", args.strategy, tuple(STRATEGIES))
        for name in TARGETS if args.target == "all" else [args.target]:
            with console.status(f"compiling for {name}"):
                results.append(
                    measure(name, args.strategy, args.sync_period, args.stream)
                )
            if args.json:
                print(json.dumps(results[-1]), flush=True)
    except (ValueError, ModuleNotFoundError) as error:
        parser.error(str(error))
    if not args.json:
        heads = (
            "target",
            "MB sent",
            "overlapped",
            "temporaries / params",
            "compile, s",
        )
        columns = [Column(head, justify="right") for head in heads]
        table = Table(
            *columns, title=f"{args.strategy}, {args.sync_period} local steps"
        )
        for result in results:
            table.add_row(*row(result))
        console.print(table)
    return 0 if all(x["overlapped_fraction"] >= 0.99 for x in results) else 1


if __name__ == "__main__":
    sys.exit(main())
