"""Gradients for workers whose devices each hold a shard of the model (FSDP).

By default the compiler may shard activations as the parameters are sharded, and
exchange them at every step. Those exchanges would keep the mean from overlapping.
"""

from collections.abc import Callable

import jax
from jax import lax
from jax.sharding import Mesh, PartitionSpec

from olsgd_jax.round.local_steps import Gradient
from olsgd_jax.types import ArrayTree
from olsgd_jax.workers.sharding import shard_specs


def gathered_gradient(mesh: Mesh) -> Gradient:
    """Does what `jax.value_and_grad` does, after gathering the parameters.

    The devices of a worker then split only its batch. The gradients are sharded as the
    parameters are.

    Args:
      mesh: a mesh with an axis `fsdp`.
    """

    def gradient(loss: Callable, has_aux: bool = False) -> Callable:
        def at_whole(params: ArrayTree, *args):
            # The caller keeps them sharded.
            parts = lax.with_sharding_constraint(params, shard_specs(params, mesh))
            return loss(lax.with_sharding_constraint(parts, PartitionSpec()), *args)

        return jax.value_and_grad(at_whole, has_aux=has_aux)

    return gradient
