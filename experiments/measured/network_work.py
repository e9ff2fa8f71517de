"""The work of processes whose links are measured: rounds of a plain network."""

import operator
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh

from olsgd_jax import (
    REDUCTIONS,
    Reduction,
    Strategy,
    WorkerState,
    exact,
    init_state,
    make_round,
    make_worker_round,
    plain_loss,
    to_workers,
)
from olsgd_jax.drivers import (
    count_buckets,
    cut_fragments,
    fragments_form,
    platform_of,
    to_buckets,
)
from olsgd_jax.training import named_strategy
from olsgd_jax.types import ArrayTree, Batch, Loss

WIDTH, DEPTH, BATCH_SIZE = 512, 8, 64  # 2.1 million parameters
OPTIMIZER = optax.sgd(0.01)


class Work(NamedTuple):
    """The rounds of a process."""

    strategy: str  # its name, with a rank or "stream" after a colon
    sync_period: int  # τ
    width: int = WIDTH
    depth: int = DEPTH
    batch_size: int = BATCH_SIZE
    reduction: str = "exact"  # its name


@plain_loss
def loss(params: list, x: jax.Array) -> jax.Array:
    for w in params:
        x = jnp.tanh(x @ w)
    return jnp.mean(x**2)


def strategy_of(work: Work, num_workers: int) -> tuple[Strategy, bool]:
    """Builds the strategy, and tells whether it is streamed."""
    return named_strategy(work.strategy, num_workers)


def start(
    work: Work, mesh: Mesh, reduction: Reduction = exact()
) -> tuple[WorkerState, Batch]:
    """Makes the state and batches that a round starts with."""
    strategy, _ = strategy_of(work, mesh.size)
    state = init_state(
        _params(work), OPTIMIZER, strategy, mesh=mesh, reduction=reduction
    )
    batches = jnp.ones((work.sync_period, work.batch_size, work.width))
    return state, to_workers(batches, mesh.size, mesh)


def worker_round(
    work: Work, reduction: Reduction, mesh: Mesh, loss: Loss = loss
) -> Callable:
    """Makes one worker's round, as `make_round` does."""
    strategy, stream = strategy_of(work, mesh.size)
    platform = platform_of(mesh, reduction)
    form = fragments_form(mesh) if stream else platform.form
    return make_worker_round(
        loss,
        OPTIMIZER,
        strategy,
        reduction=reduction,
        form=form,
        gradient=platform.gradient,
    )


def make_run(
    work: Work, reduction: Reduction, mesh: Mesh, loss: Loss = loss
) -> Callable:
    """Makes the round of all workers, with the host driver where it can overlap."""
    strategy, stream = strategy_of(work, mesh.size)
    can_overlap = strategy.mean_of == "start" and not stream
    return make_round(
        loss,
        OPTIMIZER,
        strategy,
        sync_period=work.sync_period,
        mesh=mesh,
        stream=stream,
        driver="host" if can_overlap else "fused",
        reduction=reduction,
    )


def sent_trees(work: Work, num_workers: int) -> list[ArrayTree]:
    """Lists what a worker passes to the means of a round, in order."""
    params = _params(work)
    strategy, stream = strategy_of(work, num_workers)
    if strategy.mean_of == "gradients":
        return work.sync_period * [params]
    message = strategy.message(params, strategy.init(params))
    is_cut = REDUCTIONS[work.reduction]().two_means is None
    if strategy.mean_of == "end" or not is_cut:
        return [message]
    if stream:
        fragments, num = cut_fragments(message, work.sync_period), work.sync_period
        return [jax.tree.map(operator.itemgetter(k), fragments) for k in range(num)]
    return [x for x, _ in to_buckets((message, ()), count_buckets(message))]


def _params(work: Work) -> list[jax.Array]:
    return [jnp.eye(work.width)] * work.depth
