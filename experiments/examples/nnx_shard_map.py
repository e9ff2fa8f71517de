"""Example: Overlap Local-SGD in a Flax nnx training loop under `jax.shard_map`.

Run:     python -m experiments.examples.nnx_shard_map

The loop is the usual one: a model, an nnx.Optimizer, a sharded train_step, one call per
batch. Two lines make it Overlap Local-SGD: the optimizer is wrapped in `distribute`,
and the line that averaged the gradients is gone. Every worker now has a model of its
own, so model and optimizer lie on the mesh axis like the batch does.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import PartitionSpec

from olsgd_jax import (
    compiler_options,
    consensus_of,
    distribute,
    overlap_local_sgd,
    to_workers,
    worker_mesh,
)
from olsgd_jax.training import load_dataset

NUM_WORKERS, SYNC_PERIOD, BATCH_SIZE = 4, 4, 32


class Network(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.hidden = nnx.Linear(64, 64, rngs=rngs)
        self.out = nnx.Linear(64, 10, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.out(nnx.relu(self.hidden(x)))


def loss(model: Network, inputs: jax.Array, labels: jax.Array) -> jax.Array:
    logits = model(inputs)
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def main(num_steps: int = 200) -> float:
    digits = load_dataset("digits")
    strategy = overlap_local_sgd(pullback=0.6, anchor_momentum=0.7)
    sgd = optax.sgd(0.05, momentum=0.9, nesterov=True)
    model = Network(nnx.Rngs(0))
    optimizer = nnx.Optimizer(
        model, distribute(sgd, strategy, SYNC_PERIOD), wrt=nnx.Param
    )
    graph, state = nnx.split((model, optimizer))
    mesh = worker_mesh(NUM_WORKERS)
    state = to_workers(state, NUM_WORKERS, mesh)

    def train_step(state, inputs, labels):
        state, inputs, labels = jax.tree.map(lambda x: x[0], (state, inputs, labels))
        model, optimizer = nnx.merge(graph, state)
        value, grads = nnx.value_and_grad(loss)(model, inputs, labels)
        # Here stood: grads = jax.lax.pmean(grads, "workers")
        optimizer.update(model, grads)
        state = nnx.state((model, optimizer))
        return jax.tree.map(lambda x: x[None], (state, value))

    spec = PartitionSpec("workers")
    sharded = jax.shard_map(train_step, mesh=mesh, in_specs=spec, out_specs=spec)
    options = compiler_options(mesh)
    step = jax.jit(sharded, donate_argnums=0, compiler_options=options)
    rng = np.random.default_rng(0)
    for k in range(num_steps):
        rows = rng.integers(len(digits.train_labels), size=(NUM_WORKERS, BATCH_SIZE))
        state, losses = step(
            state, digits.train_inputs[rows], digits.train_labels[rows]
        )
        if (k + 1) % 50 == 0:
            print(f"step {k + 1}: loss {losses.mean():.3f}")

    model, _ = nnx.merge(graph, consensus_of(state))
    logits = model(jnp.asarray(digits.test_inputs))
    accuracy = float((logits.argmax(axis=-1) == digits.test_labels).mean())
    print(f"test accuracy of the consensus: {accuracy:.1%}")
    return accuracy


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", NUM_WORKERS)
    main()
