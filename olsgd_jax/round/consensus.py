"""Makes one model out of the models of all workers, and measures their spread.

A state holds one model per worker. One of four models represents them all:

    worker       x₀, the model of worker 0
    consensus    x̄ = meanᵢ xᵢ
    anchor       z, as stored in the state
    virtual      y, which mixing does not change: the sequence of the theorem

Between rounds, the state's anchor is the one that the workers were last pulled to. The
paper's z is one mean ahead of it: the paper updates z as soon as the models to be
averaged are known, whereas here their mean is only about to be sent.
"""

import functools
from collections.abc import Callable
from typing import get_args

import jax
import optax
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float

from olsgd_jax._checks import check_choice
from olsgd_jax.reductions.exact import worker_mean
from olsgd_jax.round.local_steps import WorkerState
from olsgd_jax.round.model_state import averaged_part, mix_model_state
from olsgd_jax.strategies.base import Strategy
from olsgd_jax.types import ArrayTree, EvaluatedModel, ModelState, Params
from olsgd_jax.workers.axis import on_workers


def model_of(
    state: WorkerState,
    strategy: Strategy,
    which: EvaluatedModel,
    mesh: Mesh | None = None,
) -> tuple[Params, ModelState]:
    """Makes one model out of the models of all workers.

    Args:
      state: state of all workers, between rounds.
      strategy: the strategy that the state was made with.
      which: "worker" (worker 0, with its own model state), "consensus", "anchor" or
        "virtual". The last three come with the mean of all workers' floating-point
        model state.
      mesh: where the workers are; None for lanes of one device.

    Returns:
      Params and model state without a worker axis, on one device of this process.

    >>> import jax.numpy as jnp, optax
    >>> from olsgd_jax import init_state, model_of, overlap_local_sgd
    >>> strategy = overlap_local_sgd(pullback=0.5)
    >>> state = init_state(jnp.zeros(()), optax.sgd(0.1), strategy, num_workers=2)
    >>> state = state._replace(params=jnp.array([1.0, 3.0]))
    >>> [
    ...     model_of(state, strategy, which)[0].item()
    ...     for which in ("worker", "consensus", "anchor", "virtual")
    ... ]
    [1.0, 2.0, 0.0, 2.0]
    """
    check_kept("which", which, state, strategy)
    virtual = strategy.virtual if which == "virtual" else None
    return _local(_program(virtual, which, mesh)(state))


def check_kept(name: str, which: str, state: WorkerState, strategy: Strategy) -> None:
    """Raises unless the state keeps the model `which`, passed as argument `name`."""
    check_choice(name, which, get_args(EvaluatedModel))
    if which == "anchor" and not hasattr(state.strategy_state, "anchor"):
        raise ValueError(
            f"{name} must be another model than 'anchor' under {strategy.name}, which "
            "keeps none; easgd, overlap_local_sgd and streaming_diloco do"
        )


def spread(state: WorkerState, mesh: Mesh | None = None) -> float:
    """Measures the mean squared distance of the workers to their consensus.

    Args:
      state: state of all workers.
      mesh: where the workers are; None for lanes of one device.

    >>> import jax.numpy as jnp, optax
    >>> from olsgd_jax import init_state, local_sgd, spread
    >>> state = init_state(jnp.zeros(2), optax.sgd(0.1), local_sgd(), num_workers=2)
    >>> spread(state._replace(params=jnp.array([[0.0, 1.0], [0.0, 3.0]])))
    1.0
    """
    return float(_local(_spread(state.params, mesh)))


# Bounded, because each new strategy object adds an entry.
@functools.lru_cache(maxsize=8)
def _program(
    virtual: Callable[..., Params] | None, which: EvaluatedModel, mesh: Mesh | None
) -> Callable[[WorkerState], tuple[Params, ModelState]]:
    def worker_model(worker: WorkerState) -> tuple[Params, ModelState]:
        if which == "worker":
            return worker.params, worker.model_state
        mean = worker_mean(averaged_part(worker.model_state, "averaged"))
        model_state = mix_model_state(worker.model_state, mean, mean_of="end")
        if which == "anchor":
            return worker.strategy_state.anchor, model_state
        consensus = worker_mean(worker.params)
        if virtual is not None:
            return virtual(consensus, worker.strategy_state), model_state
        return consensus, model_state

    return jax.jit(lambda state: _first(on_workers(worker_model, mesh)(state), mesh))


@functools.partial(jax.jit, static_argnames="mesh")
def _spread(params: Params, mesh: Mesh | None) -> Float[Array, ""]:
    def worker_spread(own: Params) -> Float[Array, ""]:
        to_consensus = optax.tree.sub(own, worker_mean(own))
        return worker_mean(optax.tree.norm(to_consensus, squared=True))

    return _first(on_workers(worker_spread, mesh)(params), mesh)


def _local(tree: ArrayTree) -> ArrayTree:
    """Gives this process's copy of arrays that are replicated on all devices."""
    return jax.tree.map(lambda x: x.addressable_data(0), tree)


def _first(tree: ArrayTree, mesh: Mesh | None) -> ArrayTree:
    """Takes worker 0's part of a tree, and replicates it over the mesh."""
    first = jax.tree.map(lambda x: x[0], tree)
    if mesh is None:
        return first
    return lax.with_sharding_constraint(first, NamedSharding(mesh, PartitionSpec()))
