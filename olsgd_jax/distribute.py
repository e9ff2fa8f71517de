"""The optax face: a strategy and an optimizer as one gradient transformation.

The caller owns the loop and calls `update` once per local step, inside `shard_map`,
`pmap` or `vmap` over a named axis. Step k of a round of τ:

    k = 0        the caller's params are the round's start x
    every k      returns u = optimizer(g), where g is the worker's own or the mean
    k = τ − 1    returns mix(x, y, mean of x or y) − params instead, y = params + u

The trajectory equals the round's, step for step. The mean of a delayed strategy is sent
while the steps compute: step k sends fragment k of x, which depends on no gradient of
that step (see `drivers.forms.fragments`). A mean of the ends y cannot overlap: the last
step computes it and waits for it.

In addition to params and the optimizer's state, a worker keeps the strategy's state,
one model's worth of fragments if the mean is delayed, and x if the mix uses it.
"""

from collections.abc import Callable, Hashable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Bool, Int

from olsgd_jax._checks import check_count
from olsgd_jax._tree_checks import check_like, check_params
from olsgd_jax.drivers.arrivals import last_needed
from olsgd_jax.drivers.forms.fragments import run_if
from olsgd_jax.drivers.forms.transit import (
    begin_transit,
    carry_transit,
    finish_transit,
    init_transit,
)
from olsgd_jax.drivers.step_checks import GRADIENTS
from olsgd_jax.reductions.base import ALL, Reduction, check_reduction, of_message
from olsgd_jax.reductions.exact import exact
from olsgd_jax.round.difference import (
    Difference,
    from_mean,
    init_difference,
    own_state,
    to_send,
    with_own,
)
from olsgd_jax.round.gradients import check_shared, reduce_gradients
from olsgd_jax.round.optimizer_checks import check_optimizer
from olsgd_jax.strategies.base import (
    Strategy,
    check_num_workers,
    check_strategy,
    send_model,
)
from olsgd_jax.types import (
    ArrayTree,
    Grads,
    OptState,
    Params,
    ReductionState,
    StrategyState,
)
from olsgd_jax.workers.axis import WORKERS, common_value, varies


class DistributedState(NamedTuple):
    """The state of one worker between steps."""

    opt_state: OptState
    strategy_state: StrategyState
    start: Params  # x, the start of the round; () if the mix does not use it
    fragments: ArrayTree  # x in transit (see `transit`); () if not delayed
    step: Int[Array, "*workers"]  # k in [0, τ), local steps of this round so far
    round: Int[Array, "*workers"]  # rounds so far, or steps if gradients are averaged
    # for gradients, for fragments or for the ends
    reduction_state: ReductionState | Difference


def distribute(
    optimizer: optax.GradientTransformation,
    strategy: Strategy,
    sync_period: int,
    axis_name: Hashable = WORKERS,
    reduction: Reduction = exact(),
) -> optax.GradientTransformationExtraArgs:
    """Combines an optimizer and a strategy into one optax transformation.

    Use it instead of the optimizer, and pass it every worker's own gradients, because
    it does all the averaging. Every worker needs its own params and optimizer state.
    `overlap_jit` and `pmap` provide them; under `shard_map` use
    `PartitionSpec("workers")`.

    Args:
      optimizer: any optax optimizer.
      strategy: how workers communicate.
      sync_period: τ, local steps in a round.
      axis_name: name of the worker axis in your `pmap` or mesh.
      reduction: how messages become a mean; pass `send_nothing()` to measure a step
        without communication.

    >>> import jax, jax.numpy as jnp, optax
    >>> from olsgd_jax import distribute, local_sgd, to_workers
    >>> tx = distribute(optax.sgd(0.5), local_sgd(), sync_period=2)
    >>> def train_step(params, opt_state, target):
    ...     updates, opt_state = tx.update(params - target, opt_state, params)
    ...     return optax.apply_updates(params, updates), opt_state
    >>> params, opt_state = to_workers((jnp.zeros(()), tx.init(jnp.zeros(()))), 2)
    >>> for _ in range(2):
    ...     params, opt_state = jax.vmap(train_step, axis_name="workers")(
    ...         params, opt_state, jnp.array([4.0, 8.0])
    ...     )
    ...     print(params)
    [2. 4.]
    [4.5 4.5]
    """
    check_strategy(strategy)
    check_reduction(reduction)
    check_optimizer(optimizer)
    check_count("sync_period", sync_period)
    inner = optax.with_extra_args_support(optimizer)
    is_delayed = strategy.mean_of == "start"

    def init(params: Params) -> DistributedState:
        check_params(params)
        return init_own(params)._replace(opt_state=inner.init(params))

    def init_own(params: Params) -> DistributedState:
        """Gives the state without that of the optimizer."""
        strategy_state = strategy.init(params)
        # Copied: a caller may donate params and state, which then must share no buffer.
        check_shared(strategy, reduction, strategy_state)
        keeps_start = _uses_start(strategy, params, strategy_state)
        keeps_start |= is_delayed and reduction.part is not ALL
        message = strategy.message(params, strategy_state)
        if is_delayed:
            sent = reduction.part.take(message)
            fragments, kept = init_transit(reduction, sent, sync_period)
        else:
            fragments, kept = (), reduction.init(message)
        if strategy.mean_of != "gradients" and strategy.message is send_model:
            kept = init_difference(reduction, params, kept)
        return DistributedState(
            opt_state=(),
            strategy_state=strategy_state,
            start=jax.tree.map(jnp.copy, params) if keeps_start else (),
            fragments=fragments,
            step=jnp.zeros((), jnp.int32),
            round=jnp.zeros((), jnp.int32),
            reduction_state=kept,
        )

    def update(
        updates: Grads, state: OptState, params: Params | None = None, **extra
    ) -> tuple[Grads, OptState]:
        if params is None:
            raise ValueError(
                "params must be passed to update: tx.update(grads, state, params)"
            )
        if not isinstance(state, DistributedState):
            raise TypeError(
                "state must be made by this transformation's init, "
                f"got {type(state).__name__}"
            )
        expected = jax.eval_shape(init_own, params)
        hint = "give distribute the strategy, sync_period and reduction that made it"
        check_like("state", state._replace(opt_state=()), expected, hint)
        check_num_workers(strategy, _axis_size(axis_name))
        _check_own(updates, params, axis_name)
        updates = jax.tree.map(lambda g: checkpoint_name(g, GRADIENTS), updates)
        states = state.strategy_state, state.reduction_state
        now = of_message(reduction, state.round, axis_name)
        grads, (strategy_state, kept) = reduce_gradients(
            strategy, now, updates, states, axis_name=axis_name
        )
        updates, opt_state = inner.update(grads, state.opt_state, params, **extra)
        if strategy.mean_of == "gradients":
            return updates, state._replace(
                opt_state=opt_state,
                strategy_state=strategy_state,
                round=state.round + 1,
                reduction_state=kept,
            )

        k = common_value(state.step, axis_name)
        begun, own = (state.start, state.fragments), own_state(kept)
        keeps_start = bool(jax.tree.leaves(state.start))

        def begin(before: tuple) -> tuple[Params, ArrayTree]:
            start, fragments = before
            if is_delayed:
                message = strategy.message(params, state.strategy_state)
                outgoing = now.part.take(to_send(message, kept)), own
                fragments = begin_transit(now, outgoing, fragments, sync_period)
            return params if keeps_start else start, fragments

        start, fragments = lax.cond(k == 0, begin, lambda same: same, begun)
        if is_delayed:
            (fragments, own), updates = carry_transit(
                now, (fragments, own), k, updates, axis_name, sync_period
            )

        def mix(
            updates: Grads,
            state: StrategyState,
            fragments: ArrayTree,
            kept: ReductionState | Difference,
        ) -> tuple[Grads, StrategyState, ArrayTree, ReductionState | Difference]:
            end, own = optax.apply_updates(params, updates), own_state(kept)
            if is_delayed:
                like = jax.eval_shape(
                    lambda *x: now.part.take(strategy.message(*x)), params, state
                )
                outgoing = fragments, own
                mean, own = finish_transit(now, outgoing, like, sync_period)
            else:
                message = now.part.take(to_send(strategy.message(end, state), kept))
                mean, own = now.reduce(message, own, axis_name)
            mean, kept = from_mean(mean, own, kept)
            old = start if keeps_start else end  # not used by the mix
            mean = now.part.put(mean, old if is_delayed else end)
            mixed, state = strategy.mix(old, end, mean, state)
            return _difference(mixed, params, updates), state, fragments, kept

        kept = with_own(kept, own)
        # The count is the same on all workers, so all take the branch with the mean.
        updates, strategy_state, fragments, kept = (
            run_if if is_delayed else _branch_if
        )(k == sync_period - 1, mix, updates, strategy_state, fragments, kept)
        return updates, DistributedState(
            opt_state,
            strategy_state,
            start,
            fragments,
            step=(k + 1) % sync_period,
            round=state.round + (k == sync_period - 1).astype(jnp.int32),
            reduction_state=kept,
        )

    return optax.GradientTransformationExtraArgs(init, update)


def _branch_if(is_so: Bool[Array, ""], fn: Callable, *carry: ArrayTree) -> tuple:
    return lax.cond(is_so, fn, lambda *same: same, *carry)


def _uses_start(
    strategy: Strategy, params: Params, strategy_state: StrategyState
) -> bool:
    """Whether the mix uses the round's start, according to its jaxpr."""
    if strategy.mean_of == "gradients":
        return False
    rest = (params, strategy.message(params, strategy_state), strategy_state)
    traced = jax.make_jaxpr(lambda x, rest: strategy.mix(x, *rest))(params, rest)
    num_arrays = len(jax.tree.leaves(params))
    others = len(traced.in_avals) - num_arrays
    return any(last_needed(traced.jaxpr, [1] * num_arrays + [0] * others))


def _difference(mixed: Params, params: Params, updates: Grads) -> Grads:
    """Gives the update that leads to `mixed`, in the dtype of the other updates."""
    return jax.tree.map(
        lambda new, old, u: new.astype(u.dtype) - old.astype(u.dtype),
        mixed,
        params,
        updates,
    )


def _axis_size(axis_name: Hashable) -> int:
    try:
        return lax.axis_size(axis_name)
    except NameError as error:
        raise ValueError(
            "update must run under overlap_jit, pmap, shard_map or vmap over an axis "
            f"{axis_name!r}; name the axis of your own mapping with axis_name"
        ) from error


def _check_own(grads: Grads, params: Params, axis_name: Hashable) -> None:
    """Raises if shard_map's types show that workers share params or gradients."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        if not varies(leaf, axis_name):
            raise ValueError(
                "params must be each worker's own, got the same "
                f"{jax.tree_util.keystr(path) or 'array'} for all of axis "
                f"{axis_name!r}, over which shard_map would sum its gradients; give "
                "params and optimizer state a worker axis with to_workers and "
                f"PartitionSpec({axis_name!r}), or use overlap_jit"
            )
    if not any(varies(leaf, axis_name) for leaf in jax.tree.leaves(grads)):
        raise ValueError(
            "gradients must be each worker's own, got gradients that are already "
            f"averaged over axis {axis_name!r}; leave out the pmean or psum of the "
            "gradients, or the axis_name of a wrapper that averages them"
        )
