"""Workloads to compile for targets: three models, as shapes only."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh, NamedSharding

from olsgd_jax._extras import needs_extra

with needs_extra("train"):
    import flax.linen as nn

from olsgd_jax.reductions.base import Reduction
from olsgd_jax.reductions.exact import exact
from olsgd_jax.round.state import init_state
from olsgd_jax.strategies.base import Strategy
from olsgd_jax.training.models.mlp import MLP
from olsgd_jax.training.models.resnet import ResNet
from olsgd_jax.training.models.transformer import Transformer
from olsgd_jax.training.tasks import Task, classification
from olsgd_jax.types import ArrayTree
from olsgd_jax.workers.axis import WORKERS
from olsgd_jax.workers.sharding import batch_shardings, state_shardings


class Workload(NamedTuple):
    """A model, and the shapes of one worker's batch."""

    module: nn.Module
    inputs: jax.ShapeDtypeStruct
    labels: jax.ShapeDtypeStruct

    @property
    def task(self) -> Task:
        """The model's init and loss."""
        return classification(self.module, self.inputs)


def _tokens(batch_size: int, length: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((batch_size, length), jnp.int32)


WORKLOADS = {
    "mlp": Workload(  # 18.9 million parameters in 10 arrays
        MLP(2048, num_classes=10, depth=4),
        jax.ShapeDtypeStruct((128, 3072), jnp.float32),
        jax.ShapeDtypeStruct((128,), jnp.int32),
    ),
    "resnet18": Workload(  # 11.2 million in 62
        ResNet(),
        jax.ShapeDtypeStruct((128, 32, 32, 3), jnp.float32),
        jax.ShapeDtypeStruct((128,), jnp.int32),
    ),
    "transformer": Workload(  # 98.0 million in 196
        Transformer(num_tokens=16_384, width=768, depth=12, num_heads=12),
        _tokens(8, 512),
        _tokens(8, 512),
    ),
}
"""Workloads by name."""

OPTIMIZER = optax.sgd(0.1, momentum=0.9, nesterov=True)


def arguments(
    workload: Workload,
    mesh: Mesh,
    strategy: Strategy,
    sync_period: int,
    reduction: Reduction = exact(),
) -> ArrayTree:
    """Gives the shapes of a round's state and batches, placed on the mesh."""
    num_workers = mesh.shape[WORKERS]

    def state_and_batches():
        params, model_state = workload.task.init(jax.random.key(0))
        state = init_state(
            params,
            OPTIMIZER,
            strategy,
            num_workers=num_workers,
            model_state=model_state,
            reduction=reduction,
        )
        batch = {"inputs": workload.inputs, "labels": workload.labels}
        batches = jax.tree.map(
            lambda x: jnp.zeros((num_workers, sync_period, *x.shape), x.dtype), batch
        )
        return state, batches

    state, batches = jax.eval_shape(state_and_batches)
    shardings = batch_shardings(batches, mesh)
    return placed(state, mesh), jax.tree.map(_with_sharding, batches, shardings)


def placed(state: ArrayTree, mesh: Mesh) -> ArrayTree:
    """Places the shapes of arrays with a leading worker axis on the mesh."""
    return jax.tree.map(_with_sharding, state, state_shardings(state, mesh))


def _with_sharding(
    x: jax.ShapeDtypeStruct, sharding: NamedSharding
) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding)
