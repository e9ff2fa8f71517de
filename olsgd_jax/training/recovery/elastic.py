"""Changing the number of workers between two rounds, from m to n.

The first min(m, n) workers stay. With x̄ the consensus of all m, z the anchor, sᵢ the
model state and eᵢ what else is kept for each worker (the error of a reduction, a
strategy's fields in `own`):

    n > m    xᵢ ← z, or x̄ if the strategy keeps no anchor        for every new worker
             sᵢ ← meanⱼ sⱼ,  eᵢ ← meanⱼ eⱼ
    n < m    xᵢ ← xᵢ + (x̄ − mean of xⱼ over the workers who stay)  for all who stay
             sᵢ ← meanⱼ sⱼ,  eᵢ ← eᵢ + (meanⱼ eⱼ − mean of eⱼ over those who stay)

Workers who stay keep everything else; anchor, velocity, and what workers share of a
reduction's state (its reference, the Q of low rank) do not change. So nothing is lost
when workers leave: the consensus stays where it was, the next mean of Overlap Local-SGD
is the one it would have been, and the virtual model stays too, except that of EASGD,
which weighs the anchor by m. New workers move the consensus toward the anchor, but the
mean of what is yet to be sent stays. The model state is averaged rather than shifted
because a shift could make a variance negative.

A new worker has a fresh optimizer whose step count continues. If all workers must share
one optimizer state (synchronous SGD), a new worker gets a copy of it; otherwise their
models would drift apart. Means are computed as x₀ + meanᵢ (xᵢ − x₀), which is exactly
x₀ if all are equal, so equal workers stay equal.
"""

import functools
import math

import jax
import jax.numpy as jnp
import optax
from jax.sharding import AxisType, Mesh, Sharding

from olsgd_jax.reductions.exact import worker_mean
from olsgd_jax.round.difference import own_state, with_own
from olsgd_jax.round.local_steps import WorkerState
from olsgd_jax.round.model_state import averaged_part, mix_model_state
from olsgd_jax.round.state import init_state
from olsgd_jax.strategies.base import Strategy
from olsgd_jax.training.components import Components
from olsgd_jax.training.config import Config
from olsgd_jax.types import ArrayTree, ModelState, Params
from olsgd_jax.workers.axis import WORKERS, on_workers
from olsgd_jax.workers.sharding import place, state_shardings

COPIES = "copies"
"""Name of the mesh axis along which devices hold the same workers."""


def resized(state: WorkerState, config: Config, components: Components) -> WorkerState:
    """Changes the number of workers to the one in the config.

    Args:
      state: state of m workers, between rounds, placed as `like_workers` says.
      config: options of the run from here on, with n workers.
      components: components of that config.
    """
    m = len(state.round)
    if m == config.num_workers:
        return state

    def resize(state: WorkerState) -> WorkerState:
        if config.num_workers < m:
            return _shrunk(state, config.num_workers, components.strategy)
        return _grown(state, config, components)

    shardings = state_shardings(jax.eval_shape(resize, state), components.mesh)
    return jax.jit(resize, out_shardings=shardings)(state)


def like_workers(tree: ArrayTree, num_workers: int, mesh: Mesh | None) -> ArrayTree:
    """Gives shapes and shardings of arrays for a different number of workers.

    Args:
      tree: arrays with a leading worker axis.
      num_workers: the different number.
      mesh: mesh of the tree; None for lanes of one device.

    >>> import jax.numpy as jnp
    >>> like_workers({"w": jnp.zeros((4, 2))}, 3, mesh=None)["w"].shape
    (3, 2)
    """

    def shape(x: jax.Array, sharding: Sharding | None = None) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(
            (num_workers, *x.shape[1:]), x.dtype, sharding=sharding
        )

    if mesh is None:
        return jax.tree.map(lambda x: shape(x, x.sharding), tree)
    mesh = _regrouped(mesh, num_workers)
    return jax.tree.map(shape, tree, state_shardings(jax.tree.map(shape, tree), mesh))


def start_workers(
    model: tuple[Params, ModelState],
    state: WorkerState,
    config: Config,
    components: Components,
) -> WorkerState:
    """Starts all workers from one model in the middle of a run.

    Momentum, velocities and the like are as before the first step. Counts of steps and
    rounds continue, so that schedules do.

    Args:
      model: params and model state, without a worker axis.
      state: state of the run, with any number of workers; its counts are kept.
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
            reduction=components.reduction,
            model_state_policy=config.model_state_policy,
        )
        counted = jax.tree.map(_keep_counts, fresh, state)
        return counted._replace(key=fresh.key)

    shardings = state_shardings(jax.eval_shape(start, model, state), components.mesh)
    return jax.jit(start, out_shardings=shardings)(model, state)


def _keep_counts(new: jax.Array, old: jax.Array) -> jax.Array:
    if jnp.issubdtype(new.dtype, jnp.inexact):
        return new
    return jnp.broadcast_to(old[0], new.shape)


def _regrouped(mesh: Mesh | None, num_workers: int) -> Mesh | None:
    """Groups the slots of a mesh so that every group has the same number of workers.

    The devices of a group hold copies of the same workers.
    """
    slots = 1 if mesh is None else mesh.shape[WORKERS]
    groups = math.gcd(slots, num_workers)
    if mesh is None or groups == slots:
        return mesh
    devices = mesh.devices.reshape(groups, -1, *mesh.devices.shape[1:])
    names = (WORKERS, COPIES, *mesh.axis_names[1:])
    return Mesh(devices, names, axis_types=(AxisType.Auto,) * devices.ndim)


def _shrunk(state: WorkerState, num_stay: int, strategy: Strategy) -> WorkerState:
    m = len(state.round)
    # With these weights the mean is that of all workers minus that of those who stay.
    weights = [1 - m / num_stay] * num_stay + [1.0] * (m - num_stay)

    def folded(tree: ArrayTree) -> ArrayTree:
        return optax.tree.add(tree, _mean_from_first(tree, weights))

    own = {name: folded(getattr(state.strategy_state, name)) for name in strategy.own}
    if own:
        state = state._replace(strategy_state=state.strategy_state._replace(**own))
    kept = state.reduction_state
    state = state._replace(
        params=folded(state.params),
        model_state=_averaged(state.model_state),
        reduction_state=kept._replace(
            gradients=folded(kept.gradients),
            models=with_own(kept.models, folded(own_state(kept.models))),
        ),
    )
    return jax.tree.map(lambda x: x[:num_stay], state)


def _grown(state: WorkerState, config: Config, components: Components) -> WorkerState:
    m, strategy = len(state.round), components.strategy
    anchor = getattr(state.strategy_state, "anchor", None)
    params = _mean(state.params) if anchor is None else anchor
    models = params, _averaged(state.model_state)
    model = jax.tree.map(lambda x: x[0], models)
    fresh = start_workers(model, state, config, components)

    copy_first = functools.partial(
        jax.tree.map,
        lambda x: jnp.broadcast_to(x[:1], (len(fresh.round), *x.shape[1:])),
    )
    # What workers share is its own mean, to the last bit.
    kept = copy_first(_mean((state.strategy_state, state.reduction_state)))
    fresh = fresh._replace(strategy_state=kept[0], reduction_state=kept[1])
    if "opt_state" in strategy.common:
        fresh = fresh._replace(opt_state=copy_first(state.opt_state))
    joined = jax.tree.map(
        lambda old, new: jnp.concatenate([old, new[m:]]), state, fresh
    )
    # XLA of JAX 0.12 aborts if it has to move arrays directly from groups of devices
    # with the same workers to the new mesh. This makes it take two steps.
    groups = _regrouped(components.mesh, m)
    return place(joined, state_shardings(joined, groups))


def _averaged(model_state: ModelState) -> ModelState:
    """Gives all workers the mean of floating-point arrays; counters stay."""
    mean = _mean(averaged_part(model_state, "averaged"))
    return mix_model_state(model_state, mean, mean_of="end")


def _mean(tree: ArrayTree) -> ArrayTree:
    """Gives all workers x₀ + meanᵢ (xᵢ − x₀)."""
    return jax.tree.map(lambda x, mean: x[:1] + mean, tree, _mean_from_first(tree))


def _mean_from_first(tree: ArrayTree, weights: list[float] | None = None) -> ArrayTree:
    """Gives all workers meanᵢ wᵢ (xᵢ − x₀); all wᵢ are 1 unless given.

    Of counts, which are not averaged, it gives 0.
    """
    if not jax.tree.leaves(tree):
        return tree

    def weighted(x: jax.Array) -> jax.Array:
        if not jnp.issubdtype(x.dtype, jnp.inexact):
            return jnp.zeros(x.shape, jnp.float32)
        apart = x - x[:1]
        if weights is None:
            return apart
        return apart * jnp.array(weights, x.dtype).reshape(-1, *[1] * (x.ndim - 1))

    # As lanes on any mesh: where a worker has several devices, the compiler aborts on
    # sums over groups of slots with copies.
    mean = on_workers(worker_mean, mesh=None)(jax.tree.map(weighted, tree))
    return optax.tree.cast_like(mean, tree)
