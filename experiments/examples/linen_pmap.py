"""Example: Overlap Local-SGD in a Flax linen training loop under `jax.pmap`.

Run:     python -m experiments.examples.linen_pmap

The loop is the usual one: a TrainState, a pmapped train_step, one call per batch.
Two lines make it Overlap Local-SGD: the optimizer is wrapped in `distribute`, and the
line that averaged the gradients is gone.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training.train_state import TrainState

from olsgd_jax import consensus_of, distribute, overlap_local_sgd, to_workers
from olsgd_jax.training import load_dataset

NUM_WORKERS, SYNC_PERIOD, BATCH_SIZE = 4, 4, 32


class Network(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(10)(nn.relu(nn.Dense(64)(x)))


def train_step(state: TrainState, inputs: jax.Array, labels: jax.Array):
    def loss(params):
        logits = state.apply_fn({"params": params}, inputs)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    value, grads = jax.value_and_grad(loss)(state.params)
    # Here stood: grads = jax.lax.pmean(grads, "batch")
    return state.apply_gradients(grads=grads), value


def main(num_steps: int = 200) -> float:
    digits = load_dataset("digits")
    network = Network()
    params = network.init(jax.random.key(0), digits.train_inputs[:1])["params"]
    optimizer = optax.sgd(0.05, momentum=0.9, nesterov=True)
    strategy = overlap_local_sgd(pullback=0.6, anchor_momentum=0.7)
    tx = distribute(optimizer, strategy, SYNC_PERIOD, axis_name="batch")

    state = TrainState.create(apply_fn=network.apply, params=params, tx=tx)
    state = to_workers(state, NUM_WORKERS)
    step = jax.pmap(train_step, axis_name="batch", donate_argnums=0)
    rng = np.random.default_rng(0)
    for k in range(num_steps):
        rows = rng.integers(len(digits.train_labels), size=(NUM_WORKERS, BATCH_SIZE))
        state, loss = step(state, digits.train_inputs[rows], digits.train_labels[rows])
        if (k + 1) % 50 == 0:
            print(f"step {k + 1}: loss {loss.mean():.3f}")

    model = consensus_of(state)
    logits = jnp.asarray(network.apply({"params": model.params}, digits.test_inputs))
    accuracy = float((logits.argmax(axis=-1) == digits.test_labels).mean())
    print(f"test accuracy of the consensus: {accuracy:.1%}")
    return accuracy


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", NUM_WORKERS)
    main()
