"""What is compiled for targets: four hidden layers of 2,048 units, as shapes only."""

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh

from olsgd_jax.state import init_state
from olsgd_jax.strategies.base import Strategy
from olsgd_jax.types import ArrayTree, Batch, Params
from olsgd_jax.workers import worker_sharding

SIZES, BATCH_SIZE = (3072, 2048, 2048, 2048, 2048, 10), 128
OPTIMIZER = optax.sgd(0.1, momentum=0.9, nesterov=True)


def loss(params: Params, batch: Batch) -> jax.Array:
    """The cross-entropy of a network of dense layers."""
    x = batch["inputs"]
    for layer in params[:-1]:
        x = jax.nn.relu(x @ layer["kernel"] + layer["bias"])
    logits = x @ params[-1]["kernel"] + params[-1]["bias"]
    labels = batch["labels"]
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def arguments(mesh: Mesh, strategy: Strategy, sync_period: int) -> ArrayTree:
    """Gives the shapes of a round's state and batches, placed on the mesh."""

    def state_and_batches():
        params = [
            {"kernel": jnp.zeros((rows, columns)), "bias": jnp.zeros(columns)}
            for rows, columns in zip(SIZES, SIZES[1:], strict=False)
        ]
        state = init_state(params, OPTIMIZER, strategy, num_workers=mesh.size)
        shape = (mesh.size, sync_period, BATCH_SIZE)
        inputs, labels = jnp.zeros((*shape, SIZES[0])), jnp.zeros(shape, jnp.int32)
        return state, {"inputs": inputs, "labels": labels}

    return jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(
            x.shape, x.dtype, sharding=worker_sharding(mesh)
        ),
        jax.eval_shape(state_and_batches),
    )
