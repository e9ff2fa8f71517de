"""A run in float64, so that numbers can be compared to the last digits."""

import jax
import jax.numpy as jnp

from olsgd_jax import init_state
from olsgd_jax.training import MLP, classification


def in_float64(config, components):
    """The same run with models, inputs and losses in float64."""
    shape = jax.ShapeDtypeStruct((1, 64), jnp.float64)
    task = classification(MLP(4, 10), shape, prepare=lambda x: x.astype(jnp.float64))

    def init():
        params, _ = task.init(jax.random.key(0))
        params = jax.tree.map(lambda x: x.astype(jnp.float64), params)
        return init_state(
            params,
            components.optimizer,
            components.strategy,
            mesh=components.mesh,
            num_workers=config.num_workers,
        )

    return components._replace(task=task, init=init)
