"""Workers that start from one model in the middle of a run.

They know nothing else: momentum, velocities and the like are as at a first
step. Counts of steps and rounds go on, so that a schedule is where it was.
"""

import jax
import jax.numpy as jnp

from olsgd_jax.round.local_steps import WorkerState
from olsgd_jax.round.state import init_state
from olsgd_jax.training.components import Components
from olsgd_jax.training.config import Config
from olsgd_jax.types import ModelState, Params
from olsgd_jax.workers.sharding import state_shardings


def start_workers(
    model: tuple[Params, ModelState],
    state: WorkerState,
    config: Config,
    components: Components,
) -> WorkerState:
    """Starts all workers of a run from one model.

    Args:
      model: params and model state, without a worker axis.
      state: state of the run, with any number of workers; its counts stay.
      config: options of the run, with the number of workers to start.
      components: components of the run.
    """

    def start(model: tuple[Params, ModelState], state: WorkerState) -> WorkerState:
        params, model_state = model
        fresh = init_state(
            params,
            components.optimizer,
            components.strategy,
            mesh=components.mesh,
            num_workers=config.num_workers,
            model_state=model_state,
            seed=config.seed,
        )
        counted = jax.tree.map(_keep_counts, fresh, state)
        return counted._replace(key=fresh.key)

    shardings = state_shardings(jax.eval_shape(start, model, state), components.mesh)
    return jax.jit(start, out_shardings=shardings)(model, state)


def _keep_counts(new: jax.Array, old: jax.Array) -> jax.Array:
    if jnp.issubdtype(new.dtype, jnp.inexact):
        return new
    return jnp.broadcast_to(old[0], new.shape)
