"""make_round: a loss, an optimizer and a strategy become `overlap_round`."""

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
      loss: what is minimised; see `plain_loss` and `classification`.
      optimizer: any optax optimizer; learning-rate schedules are part of it.
      strategy: how workers communicate.
      sync_period: τ, local steps in a round.
      mesh: where the workers are, as `worker_mesh` makes it; None for lanes of one
        device.
      mapping: "shard_map" (default with a mesh), "pmap", or "vmap" (default without).
      model_state_policy: "local" keeps batch statistics and the like with their
        worker; "averaged" averages them with the models.
      stream: send a part of the models with every local step, instead of all of them
        at the round's start; for delayed strategies. The numbers stay the same.
      driver: "fused" for one program, "host" for programs that a second thread
        overlaps. By default "host" for delayed strategies on CPUs of several
        processes unless they are streamed, else "fused".
      platform: how the round is compiled; by default so that it overlaps on the
        mesh's devices, see `platform_of`.
      reduction: how models and gradients become a mean. `send_nothing()` gives the
        same round without communication, to measure what communication adds to it.

    Returns:
      overlap_round(state, batches, present=None) -> (state, record). State as
      `init_state` makes it; it is donated, so use the one returned. Batches have
      leading axes (worker, local step). `present`, one bool for every worker, says who
      takes part in this round; by default all do. The mean is over those present; an
      absent worker, which needs batches of the right shape, keeps what is its own (see
      `absence`). A mask is looked at before the round starts: one made with NumPy is
      there, for others the call waits. Calls return before the round has ended; on
      several devices of one CPU, `jax.block_until_ready` now and then: with 32 rounds
      under way they can block each other for good.

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
    # A streamed round is one program, whatever its platform makes of it.
    driver = driver or ("fused" if stream else default_driver(mesh, strategy))
    check_choice("driver", driver, get_args(Driver))
    platform = platform or platform_of(mesh)

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
