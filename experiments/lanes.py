"""Question: does a worker cost more when many share one device?

Run:     python -m experiments.lanes
Cost:    20 seconds (2 CPU cores)
Answer:  no: a lane among 1,000 takes 0.57 times as long as one among 10, and about as
         long as one among 100. With few lanes, the cost of the call dominates.
"""

import statistics

import jax
import jax.numpy as jnp
import optax
from rich.console import Console

from experiments.cli.options import command_parser, count
from experiments.cli.table import make_table
from experiments.measured.turns import take_turns
from olsgd_jax import init_state, make_round, overlap_local_sgd
from olsgd_jax.training import MLP, classification

NUM_WORKERS = (1, 10, 100, 1000)
SYNC_PERIOD, BATCH_SIZE, WIDTH = 4, 32, 32


def make_runner(num_workers: int):
    """Makes a function that runs one round of `num_workers` lanes, and waits."""
    task = classification(
        MLP(WIDTH, num_classes=10), jax.ShapeDtypeStruct((1, 64), jnp.float32)
    )
    params, _ = task.init(jax.random.key(0))
    optimizer = optax.sgd(0.05, momentum=0.9, nesterov=True)
    strategy = overlap_local_sgd(pullback=0.6, anchor_momentum=0.7)
    overlap_round = make_round(task.loss, optimizer, strategy, sync_period=SYNC_PERIOD)
    state = init_state(params, optimizer, strategy, num_workers=num_workers)
    shape = (num_workers, SYNC_PERIOD, BATCH_SIZE)
    batches = {
        "inputs": jax.random.normal(jax.random.key(1), (*shape, 64)),
        "labels": jax.random.randint(jax.random.key(2), shape, 0, 10),
    }

    def run() -> None:
        nonlocal state
        state, record = overlap_round(state, batches)
        jax.block_until_ready((state, record))

    return run


def main(repetitions: int) -> dict[int, float]:
    samples = take_turns({f"{m}": make_runner(m) for m in NUM_WORKERS}, repetitions)
    per_worker = {m: statistics.median(samples[f"{m}"]) / m for m in NUM_WORKERS}
    heads = ("workers", "round, ms", "per worker, µs", "against 10 workers")
    rows = [
        [f"{m}", f"{1e3 * m * x:.2f}", f"{1e6 * x:.0f}", f"{x / per_worker[10]:.2f}"]
        for m, x in per_worker.items()
    ]
    title = f"One round of {SYNC_PERIOD} local steps, workers as lanes"
    Console().print(make_table(heads, rows, title))
    return per_worker


if __name__ == "__main__":
    parser = command_parser(__doc__)
    parser.add_argument(
        "--repetitions", type=count, default=31, help="timed rounds of each size"
    )
    main(parser.parse_args().repetitions)
