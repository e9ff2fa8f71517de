"""make_round: builds a round from a loss, an optimizer and a strategy."""

from collections.abc import Callable
from typing import get_args

import optax
from jax.sharding import Mesh

from olsgd_jax._checks import check_choice, check_count
from olsgd_jax.drivers.forms.base import fragments_form
from olsgd_jax.drivers.fused import fused
from olsgd_jax.drivers.host import host
from olsgd_jax.drivers.platforms import Platform, default_driver, platform_of
from olsgd_jax.reductions.base import Reduction, check_reduction
from olsgd_jax.reductions.exact import exact
from olsgd_jax.round.local_steps import WorkerState
from olsgd_jax.round.loss_checks import check_loss
from olsgd_jax.round.optimizer_checks import check_optimizer
from olsgd_jax.round.round_parts import make_round_parts
from olsgd_jax.round.state import check_state
from olsgd_jax.round.worker_round import RoundRecord, make_worker_round
from olsgd_jax.strategies.base import Strategy, check_delayed, check_strategy
from olsgd_jax.types import (
    Batch,
    Driver,
    Loss,
    Mapping,
    ModelStatePolicy,
    Present,
)
from olsgd_jax.workers.axis import WORKERS, on_workers
from olsgd_jax.workers.mesh_checks import check_mesh
from olsgd_jax.workers.sharding import batch_shardings, place, state_shardings


def make_round(
    loss: Loss,
    optimizer: optax.GradientTransformation,
    strategy: Strategy,
    *,
    sync_period: int,
    mesh: Mesh | None = None,
    mapping: Mapping | None = None,
    model_state_policy: ModelStatePolicy = "local",
    stream: bool = False,
    driver: Driver | None = None,
    platform: Platform | None = None,
    reduction: Reduction = exact(),
) -> Callable[..., tuple[WorkerState, RoundRecord]]:
    """Builds the compiled round of all workers.

    Args:
      loss: the loss to minimise; see `plain_loss` and `classification`.
      optimizer: any optax optimizer; learning-rate schedules are part of it.
      strategy: how workers communicate.
      sync_period: τ, local steps in a round.
      mesh: the workers' mesh, made by `worker_mesh`; None for lanes of one device.
      mapping: "shard_map" (default with a mesh), "pmap", or "vmap" (default without).
      model_state_policy: "local" lets every worker keep its own model state, such as
        batch statistics; "averaged" averages it with the models.
      stream: whether to send a fragment of the models with every local step, instead
        of all of them at the round's start; for delayed strategies. The results are
        the same.
      driver: "fused" for one program, "host" for programs on two host threads. The
        default is "host" for delayed strategies that are not streamed, on CPUs with
        several processes, and "fused" otherwise.
      platform: how the round is compiled. The default overlaps on the mesh's devices;
        see `platform_of`.
      reduction: how models and gradients become a mean. Pass `send_nothing()` for the
        same round without communication, to measure what communication adds.

    Returns:
      overlap_round(state, batches, present=None) -> (state, record). `init_state`
      makes the first state. The state is donated, so use the returned one. Batches have
      leading axes (worker, local step). `present` has one bool per worker and says who
      takes part in this round; by default all workers do. The mean is over the workers
      present. An absent worker keeps its own state (see `absence`), but still needs
      batches of the right shape. The mask is read before the round starts, so pass a
      NumPy array; for a JAX array the call waits until it is computed. A call returns
      before the round has ended. On several devices of one CPU, call
      `jax.block_until_ready` now and then: 32 pending rounds can deadlock.

    >>> import jax.numpy as jnp, optax
    >>> from olsgd_jax import init_state, make_round, overlap_local_sgd, plain_loss
    >>> loss = plain_loss(lambda x, centre: (x - centre) ** 2 / 2)
    >>> optimizer, strategy = optax.sgd(0.5), overlap_local_sgd(pullback=0.5)
    >>> overlap_round = make_round(loss, optimizer, strategy, sync_period=1)
    >>> state = init_state(jnp.zeros(()), optimizer, strategy, num_workers=2)
    >>> batches = jnp.array([[4.0], [8.0]])  # (worker, step)
    >>> for _ in range(2):
    ...     state, record = overlap_round(state, batches)
    >>> state.params.tolist(), state.strategy_state.anchor.tolist()
    ([2.0, 3.25], [1.5, 1.5])
    >>> present = jnp.array([True, False])
    >>> state, record = overlap_round(state, batches, present=present)
    >>> state.params.tolist(), state.strategy_state.anchor.tolist()
    ([2.5, 3.25], [2.0, 2.0])
    """
    check_strategy(strategy)
    check_reduction(reduction)
    check_optimizer(optimizer)
    check_loss(loss)
    check_mesh(mesh, WORKERS)
    check_count("sync_period", sync_period)
    if stream:
        check_delayed("stream must be False", strategy)
    # A streamed round is always one program.
    driver = driver or ("fused" if stream else default_driver(mesh, strategy))
    check_choice("driver", driver, get_args(Driver))
    platform = platform or platform_of(mesh, reduction)

    def check(state: WorkerState, batches: Batch) -> None:
        check_state(
            state,
            batches,
            optimizer,
            strategy,
            reduction,
            model_state_policy,
            sync_period,
            mesh,
        )

    if driver == "host":
        check_delayed("driver must be 'fused'", strategy)
        if stream:
            raise ValueError("stream must be False under the host driver, got True")
        parts = make_round_parts(
            loss,
            optimizer,
            strategy,
            model_state_policy,
            reduction,
            platform.gradient,
        )
        return host(parts, reduction, check, mesh, mapping)

    streamed = platform.streamed or fragments_form(mesh)
    worker_round = make_worker_round(
        loss,
        optimizer,
        strategy,
        model_state_policy,
        reduction,
        form=streamed if stream else platform.form,
        gradient=platform.gradient,
    )
    all_workers = on_workers(worker_round, mesh, mapping)

    def overlap_round(
        state: WorkerState, batches: Batch, present: Present | None = None
    ):
        check(state, batches)  # while tracing: before compilation, and only then
        batches = place(batches, batch_shardings(batches, mesh))
        state, record = all_workers(state, batches, present)
        return place(state, state_shardings(state, mesh)), record

    return fused(overlap_round, platform.compiler_options)
