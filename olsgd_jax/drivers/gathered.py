"""Gradients at the whole model, where the devices of a worker each keep a part of it.

Left to itself, the compiler may cut activations as it finds the parameters cut, and
bring them back with exchanges, which leave no room for those of the mean.
"""

from collections.abc import Callable

import jax
from jax import lax
from jax.sharding import Mesh, PartitionSpec

from olsgd_jax.round.local_steps import Gradient
from olsgd_jax.types import ArrayTree
from olsgd_jax.workers.sharding import shard_specs


def gathered_gradient(mesh: Mesh) -> Gradient:
    """Makes what `jax.value_and_grad` makes, of parameters that are gathered first.

    So the devices of a worker share its batch and nothing else. Gradients are cut again
    as the parameters are.

    Args:
      mesh: with an axis `fsdp`.
    """

    def gradient(loss: Callable, has_aux: bool = False) -> Callable:
        def at_whole(params: ArrayTree, *args):
            # Whoever hands them over keeps them in parts.
            parts = lax.with_sharding_constraint(params, shard_specs(params, mesh))
            return loss(lax.with_sharding_constraint(parts, PartitionSpec()), *args)

        return jax.value_and_grad(at_whole, has_aux=has_aux)

    return gradient
