"""The work of processes whose links are measured: rounds of a plain network."""

import operator
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh

from experiments.measured.network_records import read_label
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
    send_nothing,
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

    strategy: str  # its label (see `read_label`)
    sync_period: int  # τ
    width: int = WIDTH
    depth: int = DEPTH
    batch_size: int = BATCH_SIZE


@plain_loss
def loss(params: list, x: jax.Array) -> jax.Array:
    for w in params:
        x = jnp.tanh(x @ w)
    return jnp.mean(x**2)


def strategy_of(work: Work, num_workers: int) -> tuple[Strategy, bool]:
    """Builds the strategy, and tells whether it is streamed."""
    label = read_label(work.strategy)
    streamed = ":stream" if label.stream else ""
    return named_strategy(f"{label.strategy}{streamed}", num_workers)


def reduction_of(work: Work) -> Reduction:
    """Builds the reduction."""
    label = read_label(work.strategy)
    return REDUCTIONS[label.reduction](**label.args)


def silenced(work: Work, num_workers: int) -> Reduction:
    """Builds a reduction that sends nothing, for rounds without communication.

    For gradients in low rank it still computes what would be sent: compression counts
    as computation there.
    """
    (strategy, _), reduction = strategy_of(work, num_workers), reduction_of(work)
    two = reduction.two_means
    if two is None or strategy.mean_of != "gradients":
        return send_nothing()

    def reduce(message: ArrayTree, state: ArrayTree, *_) -> tuple:
        basis, others = two.second(message, state, two.first(message, state))
        return two.finish(message, state, basis, others)

    return reduction._replace(reduce=reduce)


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


def sent_trees(work: Work, num_workers: int) -> tuple[list[ArrayTree], Reduction]:
    """Lists what a worker passes to the means of a round, and gives their reduction."""
    params = _params(work)
    (strategy, stream), reduction = strategy_of(work, num_workers), reduction_of(work)
    is_cut = reduction.two_means is None
    message = strategy.message(params, strategy.init(params))
    match strategy.mean_of:
        case "start" if stream and is_cut:
            fragments, num = cut_fragments(message, work.sync_period), work.sync_period
            trees = [
                jax.tree.map(operator.itemgetter(k), fragments) for k in range(num)
            ]
        case "start" if is_cut:
            trees = [x for x, _ in to_buckets((message, ()), count_buckets(message))]
        case "gradients" if not is_cut:
            return work.sync_period * _two_vectors(reduction, message), exact()
        case "gradients":
            trees = work.sync_period * [message]
        case _:
            trees = [message]
    return trees, reduction


def _two_vectors(reduction: Reduction, message: ArrayTree) -> list[ArrayTree]:
    """Gives what is sent for a mean that is made of two, each as one vector."""
    two, state = reduction.two_means, reduction.init(message)
    assert two is not None
    first = two.first(message, state)
    _, second = two.second(message, state, first)
    return [ravel_pytree(x)[0] for x in (first, second)]


def _params(work: Work) -> list[jax.Array]:
    return [jnp.eye(work.width)] * work.depth
