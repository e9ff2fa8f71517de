"""The rounds to time, with and without their means."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from olsgd_jax.aot.workloads import OPTIMIZER
from olsgd_jax.bench.request import Request
from olsgd_jax.drivers.make_round import make_round
from olsgd_jax.reductions.base import Reduction
from olsgd_jax.reductions.send_nothing import send_nothing
from olsgd_jax.round.local_steps import PerMessage, WorkerState
from olsgd_jax.round.state import init_state
from olsgd_jax.training.components.strategy import named_strategy
from olsgd_jax.types import Batch, ModelState, Params
from olsgd_jax.workers.sharding import batch_shardings


class Rounds(NamedTuple):
    """Functions that run one round and wait for it; they share one state."""

    with_mean: Callable[[], WorkerState]
    without_mean: Callable[[], WorkerState]


def make_rounds(
    request: Request, name: str, models: tuple[Params, ModelState], batches: Batch
) -> Rounds:
    """Makes the rounds of a strategy, which share one state to save memory.

    Each keeps a reduction's state of its own.

    Args:
      request: model, mesh and reduction.
      name: name of the strategy, see `named_strategy`.
      models: params and model state that all workers start from.
      batches: batches of a round; their second axis is the sync period.
    """
    task, mesh = request.workload.task, request.mesh
    strategy, stream = named_strategy(name, request.num_workers)
    params, model_state = models

    def start(reduction: Reduction) -> WorkerState:
        return init_state(
            params,
            OPTIMIZER,
            strategy,
            mesh=mesh,
            model_state=model_state,
            reduction=reduction,
        )

    state = start(request.reduction)
    sync_period = jax.tree.leaves(batches)[0].shape[1]

    def rounds(reduction: Reduction, kept: PerMessage) -> Callable[[], WorkerState]:
        run = make_round(
            task.loss,
            OPTIMIZER,
            strategy,
            sync_period=sync_period,
            mesh=mesh,
            stream=stream,
            reduction=reduction,
        )

        def run_one() -> WorkerState:
            nonlocal state, kept  # a round may donate its input
            begun = state._replace(reduction_state=kept)
            state, _ = jax.block_until_ready(run(begun, batches))
            kept = state.reduction_state
            return state

        return run_one

    # It keeps nothing, so its state has no arrays to make.
    nothing = jax.eval_shape(lambda: start(send_nothing()).reduction_state)
    return Rounds(
        rounds(request.reduction, state.reduction_state),
        rounds(send_nothing(), nothing),
    )


def make_batches(request: Request, sync_period: int) -> Batch:
    """Makes up the batches of a round, on the devices that need them."""
    workload = request.workload
    shapes = {"inputs": workload.inputs, "labels": workload.labels}

    def values(x: jax.ShapeDtypeStruct) -> jax.Array:
        # No random numbers, which would take longer to compile than a round.
        shape = request.num_workers, sync_period, *x.shape
        axes = range(len(shape))
        indices = sum(lax.broadcasted_iota(jnp.int32, shape, axis) for axis in axes)
        if jnp.issubdtype(x.dtype, jnp.integer):
            return (jnp.asarray(indices) % 10).astype(x.dtype)
        return jnp.sin(jnp.asarray(indices, x.dtype))

    def batches() -> Batch:
        return {name: values(x) for name, x in shapes.items()}

    shardings = batch_shardings(jax.eval_shape(batches), request.mesh)
    return jax.jit(batches, out_shardings=shardings)()
