"""Question: what does the library cost beside the training step itself?

Run:     python -m experiments.throughput
Cost:    2 minutes (2 CPU cores)
Answer:  nothing: a round runs at 1.04 to 1.07 of the rate of steps by hand, and at 0.95
         to 1.05 of the rate with one batch used again; 16 workers take 0.46 to 0.58 of
         16 times one worker, which alone cannot keep both cores busy

One worker's round (input, augmentation, forward, backward, update, mean, mix) against
the same local steps written by hand in plain JAX; fresh batches against one batch used
again; 16 workers on as many CPU devices against 16 times one worker. CIFAR-10, the
network and batch of the preset `cpu`. All kinds of rounds take turns; medians.
"""

import argparse
import random
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from rich.console import Console
from rich.progress import track
from rich.table import Table

from experiments.cli.options import count
from experiments.paper.presets import preset
from olsgd_jax import make_round
from olsgd_jax.training import build, crop_and_flip, make_model, normalise
from olsgd_jax.types import Batch

NUM_WORKERS = 16


def plain_round(sync_period: int) -> Callable:
    """Makes the local steps of a round by hand: one compiled step, called in a loop."""
    net = make_model("resnet8", num_classes=10)

    @jax.jit
    def step(params, batch_stats, velocity, batches, k):
        images, labels = batches["inputs"][0, k], batches["labels"][0, k]
        key = jax.random.key(k)

        def loss(params):
            x = normalise(crop_and_flip(key, images))
            variables = {"params": params, "batch_stats": batch_stats}
            logits, state = net.apply(variables, x, train=True, mutable=["batch_stats"])
            losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
            return losses.mean(), state["batch_stats"]

        grads, batch_stats = jax.grad(loss, has_aux=True)(params)
        grads = jax.tree.map(
            lambda g, x: g + 1e-4 * x if x.ndim > 1 else g, grads, params
        )
        velocity = jax.tree.map(lambda v, g: 0.9 * v + g, velocity, grads)
        params = jax.tree.map(
            lambda x, v, g: x - 0.1 * (g + 0.9 * v), params, velocity, grads
        )
        return params, batch_stats, velocity

    variables = net.init(jax.random.key(0), jnp.zeros((1, 32, 32, 3)))
    params = variables["params"]
    first = params, variables["batch_stats"], jax.tree.map(jnp.zeros_like, params)

    def run(batches: dict[str, jax.Array]) -> None:
        state = first
        for k in range(sync_period):
            state = step(*state, batches, k)
        jax.block_until_ready(state)

    return run


class Rounds(NamedTuple):
    """Rounds of the library, by their number."""

    batches: Callable[[int], Batch]
    run: Callable[[Batch], None]


def library_rounds(num_workers: int, sync_period: int, data_dir: str | None) -> Rounds:
    """Makes what is needed to run rounds of so many workers."""
    config = preset(
        "cpu", sync_period=sync_period, num_workers=num_workers, data_dir=data_dir
    )
    components = build(config)
    overlap_round = make_round(
        components.task.loss,
        components.optimizer,
        components.strategy,
        sync_period=sync_period,
        mesh=components.mesh,
    )
    state = components.init()

    def run(batches: Batch) -> None:
        nonlocal state
        state, _ = overlap_round(state, batches)
        jax.block_until_ready(state)

    return Rounds(components.batches, run)


def measure(
    sync_period: int, repetitions: int, data_dir: str | None
) -> dict[str, float]:
    """Times every kind of round, in turns, and gives the median seconds of each."""
    one = library_rounds(1, sync_period, data_dir)
    many = library_rounds(NUM_WORKERS, sync_period, data_dir)
    again = one.batches(0)
    by_hand = plain_round(sync_period)
    rounds = {
        "by hand": lambda number: by_hand(one.batches(number)),
        "one worker": lambda number: one.run(one.batches(number)),
        "one worker, batch used again": lambda number: one.run(again),
        f"{NUM_WORKERS} workers": lambda number: many.run(many.batches(number)),
    }
    seconds = {name: [] for name in rounds}
    chance = random.Random(0)
    for number in track(range(-2, repetitions), "rounds"):  # the first two compile
        # In another order every time: what ran before has left its traces in caches.
        for name in chance.sample(list(rounds), len(rounds)):
            start = time.perf_counter()
            rounds[name](max(number, 0))
            if number >= 0:
                seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(times) for name, times in seconds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sync-period", type=count, default=8, help="τ")
    parser.add_argument("--repetitions", type=count, default=40, help="of every kind")
    parser.add_argument("--data-dir", help="of CIFAR-10; default TFDS_DATA_DIR")
    args = parser.parse_args()
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", NUM_WORKERS)
    try:
        median = measure(args.sync_period, args.repetitions, args.data_dir)
    except (ValueError, OSError) as error:  # of the data
        parser.error(str(error))
    table = Table("Round", "ms", title=f"{args.sync_period} local steps")
    for name, seconds in median.items():
        table.add_row(name, f"{1e3 * seconds:.1f}")
    console, one = Console(), median["one worker"]
    console.print(table)
    console.print(f"Rate against the step by hand: {median['by hand'] / one:.2f}")
    again = median["one worker, batch used again"]
    console.print(f"Rate against a batch used again: {again / one:.2f}")
    many = median[f"{NUM_WORKERS} workers"] / (NUM_WORKERS * one)
    console.print(f"{NUM_WORKERS} workers against {NUM_WORKERS} times one: {many:.2f}")


if __name__ == "__main__":
    main()
