"""Question: what does a step of `distribute` cost, compared with one with `pmean`?

Run:     python -m experiments.step_cost
Cost:    1 minute (2 CPU cores)
Answer:  Overlap Local-SGD 1.01 and 1.04 of the time for a network of 1.2 million
         parameters and 1.01 and 1.03 for a small one of convolutions (1.04 and 0.99 of
         the CPU time at most), CoCoD-SGD 0.97 to 1.01 (two runs, jax 0.10.2, quiet
         machine)

One process with 4 CPU devices, AdamW, rounds of 4 steps. Rounds of each kind alternate
in one run; a ratio is the median over pairs of neighbours. Nothing overlaps inside one
CPU program, so this is the cost of carrying the mean, not what hiding it saves. A step
sends its fragment when it has nothing left to compute, like the mean of the gradients:
on a CPU, a collective blocks one of the step's threads until all workers have arrived.
"""

import statistics
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from rich.console import Console

from experiments.cli.options import command_parser, count, use_cpu_devices
from experiments.cli.table import make_table
from experiments.measured.turns import take_turns
from olsgd_jax import (
    cocod_sgd,
    distribute,
    local_sgd,
    overlap_jit,
    overlap_local_sgd,
    sync_sgd,
    to_workers,
    worker_mesh,
)
from olsgd_jax.training import MLP
from olsgd_jax.types import ArrayTree

NUM_WORKERS, SYNC_PERIOD = 4, 4
OPTIMIZER = optax.adamw(1e-3)
STRATEGIES = {
    "sync_sgd": sync_sgd(),
    "local_sgd": local_sgd(),
    "cocod_sgd": cocod_sgd(),
    "overlap_local_sgd": overlap_local_sgd(pullback=0.6, anchor_momentum=0.7),
}
NETWORKS = {  # a network, and the shape of one worker's batch
    "mlp": (MLP(512, num_classes=10, depth=4), (32, 784)),
    "convolutions": (
        nn.Sequential(
            [
                *(nn.Conv(64, (3, 3)), nn.relu, nn.Conv(64, (3, 3)), nn.relu),
                *(lambda x: x.mean(axis=(1, 2)), nn.Dense(10)),
            ]
        ),
        (16, 16, 16, 3),
    ),
}


def make_rounds(name: str) -> dict[str, Callable[[], None]]:
    """Makes a function for each kind of step that runs one round."""
    network, shape = NETWORKS[name]
    mesh = worker_mesh(NUM_WORKERS)
    inputs = jax.random.normal(jax.random.key(0), (NUM_WORKERS, *shape))
    labels = jnp.zeros((NUM_WORKERS, shape[0]), jnp.int32)
    params = network.init(jax.random.key(1), inputs[0])["params"]
    plain = optax.chain(_average(), OPTIMIZER)
    kinds = {"pmean": plain} | {
        name: distribute(OPTIMIZER, strategy, SYNC_PERIOD)
        for name, strategy in STRATEGIES.items()
    }

    def make_round(tx: optax.GradientTransformation) -> Callable[[], None]:
        def train_step(state: ArrayTree, inputs: jax.Array, labels: jax.Array):
            params, opt_state = state

            def loss_of(params: ArrayTree) -> jax.Array:
                logits = jnp.asarray(network.apply({"params": params}, inputs))
                losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
                return losses.mean()

            loss, grads = jax.value_and_grad(loss_of)(params)
            updates, opt_state = tx.update(grads, opt_state, params)
            return (optax.apply_updates(params, updates), opt_state), loss

        step = overlap_jit(train_step, mesh)
        state = to_workers((params, tx.init(params)), NUM_WORKERS, mesh)

        def run_round() -> None:
            nonlocal state
            for _ in range(SYNC_PERIOD):
                state, _ = step(state, inputs, labels)
            jax.block_until_ready(state)

        return run_round

    return {name: make_round(tx) for name, tx in kinds.items()}


def _average() -> optax.GradientTransformation:
    """Averages gradients with `jax.lax.pmean`, as users write it by hand."""

    def update(updates: ArrayTree, state: ArrayTree, params: ArrayTree | None = None):
        return jax.lax.pmean(updates, "workers"), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


def measure(name: str, repetitions: int) -> dict[str, tuple[float, float, float]]:
    """Measures each kind's milliseconds per step, and its ratios to pmean."""
    rounds = make_rounds(name)
    samples = take_turns(rounds, repetitions)

    def ratio(kind: str, unit: str) -> float:
        pairs = zip(samples[kind + unit], samples["pmean" + unit], strict=True)
        return statistics.median(ours / theirs for ours, theirs in pairs)

    return {
        kind: (
            1e3 * statistics.median(samples[kind]) / SYNC_PERIOD,
            ratio(kind, ""),
            ratio(kind, "_cpu"),
        )
        for kind in rounds
    }


def main() -> None:
    parser = command_parser(__doc__)
    parser.add_argument(
        "--repetitions", type=count, default=60, help="rounds of each kind; %(default)s"
    )
    args = parser.parse_args()
    use_cpu_devices(NUM_WORKERS)
    console = Console()
    heads = ("step", "ms per step", "of pmean's time", "of its CPU time")
    for name in NETWORKS:
        with console.status(f"{name}: {args.repetitions} rounds of each kind"):
            measured = measure(name, args.repetitions)
        rows = [[kind, *(f"{x:.2f}" for x in own)] for kind, own in measured.items()]
        console.print(make_table(heads, rows, name))


if __name__ == "__main__":
    main()
