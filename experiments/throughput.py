"""Question: what does the library cost on top of the training step itself?

Run:     python -m experiments.throughput
Cost:    2 minutes (2 CPU cores)
Answer:  nothing: a round runs at 1.04 to 1.07 of the rate of steps by hand, and at 0.95
         to 1.05 of the rate with a reused batch; 16 workers take 0.46 to 0.58 of 16
         times one worker, which alone cannot keep both cores busy

Compares one worker's round (input, augmentation, forward, backward, update, mean, mix)
with the same local steps written by hand in plain JAX, fresh batches with a reused one,
and 16 workers on as many CPU devices with 16 times one worker. CIFAR-10, with the
network and batch size of the preset `cpu`. All kinds of rounds alternate; medians.
"""

import itertools
import statistics
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from rich.console import Console

from experiments.cli.options import command_parser, count, use_cpu_devices
from experiments.cli.table import make_table
from experiments.measured.turns import take_turns
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
    """Rounds of the library: the batches of each, and how to run it."""

    batches: Callable[[int], Batch]
    run: Callable[[Batch], None]


def library_rounds(num_workers: int, sync_period: int, data_dir: str | None) -> Rounds:
    """Sets up rounds of `num_workers` workers."""
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
    """Times every kind of round in turns; returns the median seconds of each."""
    one = library_rounds(1, sync_period, data_dir)
    many = library_rounds(NUM_WORKERS, sync_period, data_dir)
    again, numbers = one.batches(0), itertools.count()
    by_hand = plain_round(sync_period)
    rounds = {
        "by hand": lambda: by_hand(one.batches(next(numbers))),
        "one worker": lambda: one.run(one.batches(next(numbers))),
        "one worker, batch used again": lambda: one.run(again),
        f"{NUM_WORKERS} workers": lambda: many.run(many.batches(next(numbers))),
    }
    samples = take_turns(rounds, repetitions)
    return {name: statistics.median(samples[name]) for name in rounds}


def main() -> None:
    parser = command_parser(__doc__)
    add = parser.add_argument
    add(
        "--sync-period",
        type=count,
        default=8,
        help="local steps in a round, τ; %(default)s",
    )
    add(
        "--repetitions", type=count, default=40, help="rounds of each kind; %(default)s"
    )
    add("--data-dir", help="directory of CIFAR-10; default: TFDS_DATA_DIR")
    args = parser.parse_args()
    use_cpu_devices(NUM_WORKERS)
    console = Console()
    try:
        with console.status(f"{args.repetitions} rounds of each kind"):
            median = measure(args.sync_period, args.repetitions, args.data_dir)
    except (ValueError, OSError) as error:  # of the data
        parser.error(str(error))
    rows = [[name, f"{1e3 * seconds:.1f}"] for name, seconds in median.items()]
    one = median["one worker"]
    title = f"{args.sync_period} local steps"
    console.print(make_table(["Round", "ms"], rows, title))
    console.print(f"Rate against the step by hand: {median['by hand'] / one:.2f}")
    again = median["one worker, batch used again"]
    console.print(f"Rate against a batch used again: {again / one:.2f}")
    many = median[f"{NUM_WORKERS} workers"] / (NUM_WORKERS * one)
    console.print(f"{NUM_WORKERS} workers against {NUM_WORKERS} times one: {many:.2f}")


if __name__ == "__main__":
    main()
