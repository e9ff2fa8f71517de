"""The state of all workers: how it is made, and how it is checked."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh

from olsgd_jax._checks import check_seed
from olsgd_jax._tree_checks import (
    check_divisible,
    check_leading_axes,
    check_like,
    check_params,
)
from olsgd_jax.reductions.base import Reduction, check_reduction
from olsgd_jax.reductions.exact import exact
from olsgd_jax.round.difference import init_difference
from olsgd_jax.round.gradients import check_shared
from olsgd_jax.round.local_steps import PerMessage, WorkerState
from olsgd_jax.round.model_state import check_policy
from olsgd_jax.round.optimizer_checks import (
    check_hyperparameters,
    check_optimizer,
    check_steps_together,
)
from olsgd_jax.round.optimizer_step import init_optimizer, trained
from olsgd_jax.round.round_parts import message_of
from olsgd_jax.strategies.base import (
    Strategy,
    check_num_workers,
    check_strategy,
    send_model,
)
from olsgd_jax.types import (
    ArrayTree,
    Batch,
    ModelState,
    ModelStatePolicy,
    Params,
    StrategyState,
)
from olsgd_jax.workers.axis import WORKERS
from olsgd_jax.workers.mesh import check_slots, count_workers, worker_devices
from olsgd_jax.workers.mesh_checks import check_mesh
from olsgd_jax.workers.sharding import state_shardings, to_workers


def init_state(
    params: Params,
    optimizer: optax.GradientTransformation,
    strategy: Strategy,
    *,
    mesh: Mesh | None = None,
    num_workers: int | None = None,
    model_state: ModelState | None = None,
    seed: int = 0,
    reduction: Reduction = exact(),
    model_state_policy: ModelStatePolicy = "local",
) -> WorkerState:
    """Starts all workers from the same model.

    Args:
      params: the model, without a worker axis. For `optax.lookahead`, pass
        `optax.LookaheadParams.init_synced(params)`; workers then average both models.
      optimizer: the optimizer that `make_round` will get.
      strategy: the strategy that `make_round` will get.
      mesh: where the workers are, as `worker_mesh` makes it; None for lanes of one
        device.
      num_workers: m; required without a mesh. On a mesh the default is one worker per
        slot; a multiple of the slots gives every slot several workers, as lanes.
      model_state: variables other than params, such as batch statistics; none by
        default.
      seed: seed of every worker's randomness.
      reduction: the reduction that `make_round` will get.
      model_state_policy: the policy that `make_round` will get.

    Returns:
      The state, with a leading worker axis on every array, sharded over the mesh.

    >>> import jax.numpy as jnp, optax
    >>> from olsgd_jax import init_state, overlap_local_sgd
    >>> strategy = overlap_local_sgd(pullback=0.6)
    >>> state = init_state(
    ...     {"w": jnp.zeros((2, 3))}, optax.adam(1e-3), strategy, num_workers=4
    ... )
    >>> state.params["w"].shape, state.strategy_state.anchor["w"].shape
    ((4, 2, 3), (4, 2, 3))
    """
    check_params(params)
    check_optimizer(optimizer)
    check_strategy(strategy)
    check_reduction(reduction)
    check_policy(model_state_policy, reduction)
    check_mesh(mesh, WORKERS)
    check_seed("seed", seed)
    m = count_workers(mesh, num_workers)
    check_num_workers(strategy, m)

    def init_worker(models: tuple[Params, ModelState], key: jax.Array):
        params, model_state = models
        opt_state = init_optimizer(optimizer, params)
        strategy_state = strategy.init(params)
        check_shared(strategy, reduction, strategy_state)
        return WorkerState(
            params,
            model_state,
            opt_state,
            strategy_state,
            key,
            round=jnp.zeros((), jnp.int32),
            reduction_state=_init_reduction(
                reduction,
                strategy,
                model_state_policy,
                params,
                strategy_state,
                model_state,
            ),
        )

    def init_all(models: tuple[Params, ModelState], keys: jax.Array) -> WorkerState:
        return jax.vmap(init_worker, axis_name=WORKERS)(to_workers(models, m), keys)

    keys = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(seed), jnp.arange(m))
    models = params, {} if model_state is None else model_state
    shardings = state_shardings(jax.eval_shape(init_all, models, keys), mesh)
    state = jax.jit(init_all, out_shardings=shardings)(models, keys)
    check_hyperparameters(state.opt_state)
    return state


def check_state(
    state: WorkerState,
    batches: Batch,
    optimizer: optax.GradientTransformation,
    strategy: Strategy,
    reduction: Reduction,
    model_state_policy: ModelStatePolicy,
    sync_period: int,
    mesh: Mesh | None,
) -> None:
    """Raises unless a round with these arguments can run on the state."""
    if not isinstance(state, WorkerState):
        raise TypeError(f"state must be made by init_state, got {type(state).__name__}")
    check_params(state.params)
    m = _leading_axis(state)
    check_leading_axes("state", state, {"num_workers": m})
    check_slots(mesh, m)
    check_num_workers(strategy, m)
    check_leading_axes(
        "batches", batches, {"num_workers": m, "sync_period": sync_period}
    )

    if mesh is not None and worker_devices(mesh) > 1:
        check_divisible("batches", batches, axis=2, by=worker_devices(mesh))
    for part, name, init in (
        ("optimizer", "opt_state", partial(init_optimizer, optimizer)),
        ("strategy", "strategy_state", strategy.init),
    ):
        expected = jax.eval_shape(jax.vmap(init, axis_name=WORKERS), state.params)
        hint = f"pass the {part} that init_state got"
        check_like(f"state.{name}", getattr(state, name), expected, hint)
    expected = jax.eval_shape(
        jax.vmap(partial(_init_reduction, reduction, strategy, model_state_policy)),
        state.params,
        state.strategy_state,
        state.model_state,
    )
    hint = "pass the reduction and model_state_policy that init_state got"
    check_like("state.reduction_state", state.reduction_state, expected, hint)
    check_steps_together(optimizer, state.params, state.opt_state, sync_period)


def check_present(present: ArrayTree, state: WorkerState) -> None:
    """Raises unless `present` is None, or has a bool for every worker of the state."""
    if present is None:
        return
    if getattr(present, "dtype", None) != np.bool_:
        raise TypeError(f"present must be an array of bools, got {present!r}")
    if np.shape(present) != state.round.shape:
        raise ValueError(
            f"present must have a bool for each of {_leading_axis(state)} workers, "
            f"got shape {np.shape(present)}"
        )


def _init_reduction(
    reduction: Reduction,
    strategy: Strategy,
    policy: ModelStatePolicy,
    params: Params,
    strategy_state: StrategyState,
    model_state: ModelState,
) -> PerMessage:
    of_gradients = ()
    if strategy.mean_of == "gradients":
        of_gradients = reduction.init(trained(params))
    message = message_of(strategy, params, strategy_state, model_state, policy)
    own = reduction.init(message)
    if strategy.message is not send_model:
        message = message._replace(strategy=None)
    of_models = init_difference(reduction, message, own)
    return PerMessage(of_gradients, of_models)


def _leading_axis(state: WorkerState) -> int:
    return state.round.shape[0] if state.round.ndim else 0
