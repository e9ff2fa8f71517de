"""Another number of workers from one round to the next: n of them where m were.

The first min(m, n) workers stay. With x̄ the consensus of all m, z the anchor, sᵢ the
model state and eᵢ what else a strategy keeps for each worker (PowerSGD's error):

    n > m    xᵢ ← z, or x̄ where the strategy keeps no anchor     for every new worker
             sᵢ ← meanⱼ sⱼ,  eᵢ ← 0
    n < m    xᵢ ← xᵢ + (x̄ − mean of xⱼ over those who stay)      for all who stay
             sᵢ ← meanⱼ sⱼ,  eᵢ ← eᵢ + (meanⱼ eⱼ − mean of eⱼ over those who stay)

What else those who stay have is theirs, and anchor and velocity go on as they were. So
when workers leave, what they have learned stays: the consensus and what is evaluated
with it are where they were, the mean that Overlap Local-SGD takes next is the one that
it would have taken, and the virtual model stays too, but for that of EASGD, which
weighs the anchor by m. New workers draw the consensus towards the anchor. The model
state is averaged rather than moved: a variance that is moved could become negative.

A new worker has a fresh optimizer, whose count of steps goes on. Where the equations
know one optimizer state for all workers (synchronous SGD, PowerSGD), it gets that one;
otherwise their models would part. Means are taken as x₀ + meanᵢ (xᵢ − x₀), which is
exactly x₀ where all are equal: strategies that make workers equal keep them so.
"""

import functools

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh

from olsgd_jax.reductions.exact import worker_mean
from olsgd_jax.round.local_steps import WorkerState
from olsgd_jax.round.model_state import averaged_part, mix_model_state
from olsgd_jax.strategies.base import Strategy
from olsgd_jax.training.components import Components
from olsgd_jax.training.config import Config
from olsgd_jax.training.recovery.regroup import regrouped
from olsgd_jax.training.recovery.restart import start_workers
from olsgd_jax.types import ArrayTree, ModelState
from olsgd_jax.workers.axis import on_workers
from olsgd_jax.workers.sharding import place, state_shardings


def resized(state: WorkerState, config: Config, components: Components) -> WorkerState:
    """Gives a run the number of workers that its config asks for.

    Args:
      state: state of m workers, between rounds, placed as `like_workers` says.
      config: options of the run from here on; it has n workers.
      components: components of that config.
    """
    m = len(state.round)
    if m == config.num_workers:
        return state
    mesh = regrouped(components.mesh, m)

    def resize(state: WorkerState) -> WorkerState:
        if config.num_workers < m:
            return _shrunk(state, config.num_workers, components.strategy, mesh)
        return _grown(state, config, components, mesh)

    shardings = state_shardings(jax.eval_shape(resize, state), components.mesh)
    return jax.jit(resize, out_shardings=shardings)(state)


def _shrunk(
    state: WorkerState, num_stay: int, strategy: Strategy, mesh: Mesh | None
) -> WorkerState:
    m = len(state.round)
    # The mean with these weights is that of all less that of those who stay.
    weights = [1 - m / num_stay] * num_stay + [1.0] * (m - num_stay)

    def folded(tree: ArrayTree) -> ArrayTree:
        return optax.tree.add(tree, _mean_from_first(tree, mesh, weights))

    own = {name: folded(getattr(state.strategy_state, name)) for name in strategy.own}
    if own:
        state = state._replace(strategy_state=state.strategy_state._replace(**own))
    state = state._replace(
        params=folded(state.params),
        model_state=_averaged(state.model_state, mesh),
    )
    return jax.tree.map(lambda x: x[:num_stay], state)


def _grown(
    state: WorkerState, config: Config, components: Components, mesh: Mesh | None
) -> WorkerState:
    m, strategy = len(state.round), components.strategy
    anchor = getattr(state.strategy_state, "anchor", None)
    params = _mean(state.params, mesh) if anchor is None else anchor
    model = params, _averaged(state.model_state, mesh)
    fresh = start_workers(_first(model), state, config, components)

    copy_first = functools.partial(
        jax.tree.map,
        lambda x: jnp.broadcast_to(x[:1], (len(fresh.round), *x.shape[1:])),
    )
    shared = copy_first(state.strategy_state)
    own = {name: getattr(fresh.strategy_state, name) for name in strategy.own}
    fresh = fresh._replace(strategy_state=shared._replace(**own) if own else shared)
    if "opt_state" in strategy.common:
        fresh = fresh._replace(opt_state=copy_first(state.opt_state))
    joined = jax.tree.map(
        lambda old, new: jnp.concatenate([old, new[m:]]), state, fresh
    )
    # XLA of JAX 0.12 aborts if it has to move arrays straight from groups of devices
    # that hold the same workers to the new mesh; it does so in two steps from here.
    return place(joined, state_shardings(joined, mesh))


def _averaged(model_state: ModelState, mesh: Mesh | None) -> ModelState:
    """Gives all workers the mean of what is floating-point; counters stay."""
    mean = _mean(averaged_part(model_state, "averaged"), mesh)
    return mix_model_state(model_state, mean, mean_of="end")


def _mean(tree: ArrayTree, mesh: Mesh | None) -> ArrayTree:
    """Gives all workers x₀ + meanᵢ (xᵢ − x₀)."""
    return jax.tree.map(
        lambda x, mean: x[:1] + mean, tree, _mean_from_first(tree, mesh)
    )


def _mean_from_first(
    tree: ArrayTree, mesh: Mesh | None, weights: list[float] | None = None
) -> ArrayTree:
    """Gives all workers meanᵢ wᵢ (xᵢ − x₀); all wᵢ are 1 unless given."""
    if not jax.tree.leaves(tree):
        return tree

    def weighted(x: jax.Array) -> jax.Array:
        apart = x - x[:1]
        if weights is None:
            return apart
        return apart * jnp.array(weights, x.dtype).reshape(-1, *[1] * (x.ndim - 1))

    return on_workers(worker_mean, mesh)(jax.tree.map(weighted, tree))


def _first(tree: ArrayTree) -> ArrayTree:
    return jax.tree.map(lambda x: x[0], tree)
