"""Question: how much of the mean's time does the host driver hide on a slow network?

Run:     python -m experiments.hiding
Cost:    10 minutes (2 CPU cores)
Answer:  95 to 98 % where the mean takes less than 0.8 of the local steps; where it
         takes longer than they do, a round takes 1.02 to 1.05 times as long as the
         mean alone. The table stands in README.md.

Two processes, each a host of its own with a shaped link between them (needs root).
Inside the same processes, rounds with the mean alternate with rounds of the same work
without it: the difference is the exposed communication. The mean alone is timed too.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax
from rich.console import Console
from rich.table import Column, Table

from experiments.two_hosts import run_on_both, two_hosts, why_not
from olsgd_jax import (
    init_state,
    on_workers,
    overlap_local_sgd,
    plain_loss,
    to_workers,
    worker_mean,
    worker_mesh,
)
from olsgd_jax.drivers.forms import flatten
from olsgd_jax.drivers.host import host
from olsgd_jax.local import WorkerState
from olsgd_jax.round import make_round_parts
from olsgd_jax.types import ArrayTree, Mean

WIDTH, DEPTH, BATCH_SIZE = 512, 8, 64  # 2.1 million parameters
CASES = (
    "200mbit:8",
    "200mbit:32",
    "100mbit:16",
    "100mbit:64",
    "50mbit:32",
    "50mbit:128",
)


def loss(params: list, x: jax.Array) -> jax.Array:
    for w in params:
        x = jnp.tanh(x @ w)
    return jnp.mean(x**2)


def measure(sync_period: int, repetitions: int) -> dict[str, list[float]]:
    """Times rounds with and without the mean, and the mean alone, in this process."""
    mesh = worker_mesh(jax.device_count())
    optimizer, strategy = optax.sgd(0.01), overlap_local_sgd(0.6, 0.7)
    state = init_state([jnp.eye(WIDTH)] * DEPTH, optimizer, strategy, mesh=mesh)
    parts = make_round_parts(
        plain_loss(loss), optimizer, strategy, "local", worker_mean
    )
    batches = to_workers(jnp.ones((sync_period, BATCH_SIZE, WIDTH)), mesh.size, mesh)
    ready = to_workers(jnp.ones(()), mesh.size, mesh)
    barrier = jax.jit(on_workers(worker_mean, mesh))

    def make_round(mean: Mean) -> Callable:
        return host(parts, mean, lambda state, batches: None, mesh, None)

    def mean_of_start(state: WorkerState) -> ArrayTree:
        return worker_mean(flatten(parts.models(state), mesh))

    mean_alone = jax.jit(on_workers(mean_of_start, mesh))
    forms = {
        "with": make_round(worker_mean),
        "without": make_round(lambda tree: tree),
        "mean": lambda state, batches: mean_alone(state),
    }
    seconds = {name: [] for name in [*forms, "with_cpu", "without_cpu", "mean_cpu"]}
    for repetition in range(-2, repetitions):  # the first two compile and settle
        for name, run in forms.items():
            jax.block_until_ready(barrier(ready))  # both processes start together
            start, cpu = time.perf_counter(), time.process_time()
            jax.block_until_ready(run(state, batches))
            if repetition >= 0:
                seconds[name].append(time.perf_counter() - start)
                seconds[f"{name}_cpu"].append(time.process_time() - cpu)
    return seconds


def row(seconds: dict[str, list[float]]) -> list[str]:
    """Writes one case as a row of the table; HEADS are its columns."""
    median = {name: statistics.median(times) for name, times in seconds.items()}
    exposed = [a - b for a, b in zip(seconds["with"], seconds["without"], strict=True)]
    low, middle, high = (f"{1e3 * x:.0f}" for x in statistics.quantiles(exposed, n=4))
    hidden = 1 - statistics.median(exposed) / median["mean"]
    limit = max(median["without"], median["mean"])
    cpu = median["with_cpu"] - median["without_cpu"]
    return [
        *(f"{1e3 * median[name]:.0f}" for name in ("without", "mean", "with")),
        f"{middle} ({low} to {high})",
        f"{hidden:.0%}",
        f"{median['with'] / limit:.2f}",
        f"{1e3 * cpu:.0f}",
    ]


HEADS = (
    "link", "sync period", "steps, ms", "mean, ms", "round, ms",
    "exposed, ms", "hidden", "of limit", "CPU, ms",
)  # fmt: skip


def run_case(rate: str, sync_period: int, repetitions: int) -> dict[str, list[float]]:
    """Measures one rate and one sync period, in two processes on two hosts."""
    command = [sys.executable, "-m", "experiments.hiding", "--measure"]
    command += [str(sync_period), str(repetitions)]
    with two_hosts(rate):
        output = run_on_both(command, timeout=1200)
    [line] = [x for x in output.splitlines() if x.startswith("SECONDS")]
    return json.loads(line.removeprefix("SECONDS"))


def run_process(sync_period: int, repetitions: int) -> None:
    """Takes part in one measurement, as `two_hosts.run_on_both` starts it."""
    jax.config.update("jax_platforms", "cpu")
    process = int(os.environ["PROCESS"])
    jax.distributed.initialize(os.environ["COORDINATOR"], 2, process)
    seconds = measure(sync_period, repetitions)
    if process == 0:
        print("SECONDS", json.dumps(seconds))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "cases", nargs="*", default=CASES, help="rate:sync_period, as in 200mbit:16"
    )
    parser.add_argument(
        "--repetitions", type=int, default=30, help="rounds of each kind"
    )
    parser.add_argument("--measure", nargs=2, type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        return run_process(*args.measure)
    if reason := why_not():
        parser.error(reason)
    console = Console(width=max(Console().width, 120))
    columns = [Column(head, no_wrap=True, justify="right") for head in HEADS]
    table = Table(*columns, title="Two CPU processes, medians (and quartiles)")
    for case in args.cases:
        rate, _, sync_period = case.partition(":")
        with console.status(f"{case}: {args.repetitions} rounds of each kind"):
            seconds = run_case(rate, int(sync_period), args.repetitions)
        table.add_row(rate, sync_period, *row(seconds))
    console.print(table)


if __name__ == "__main__":
    main()
