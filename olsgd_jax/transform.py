"""The optax face: a strategy and an optimizer as one gradient transformation.

The caller owns the loop and calls `update` once per local step, inside `pmap`,
`shard_map` or `vmap` over a named axis. Step k of a round of τ:

    k = 0        the round's start x is what the caller's params are now
    every k      hands back u = optimizer(reduce_grads(g)), for the caller to add
    k = τ − 1    hands back mix(x, y, mean of x or y) − params instead, y = params + u

This is the round's trajectory, step for step. With `stream`, every step k also sends
piece k of x, which depends on no gradient of that step: it can travel during the
caller's own forward and backward pass, and the last step finds the whole mean there.
"""

from collections.abc import Hashable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Array, Int

from olsgd_jax.checks import check_count
from olsgd_jax.pieces import cut, join, send_piece
from olsgd_jax.strategies.base import (
    Strategy,
    check_delayed,
    check_num_workers,
)
from olsgd_jax.tree_checks import check_params
from olsgd_jax.types import ArrayTree, Grads, OptState, Params, StrategyState
from olsgd_jax.workers import WORKERS, worker_mean


class DistributedState(NamedTuple):
    """What one worker carries from step to step."""

    opt_state: OptState
    strategy_state: StrategyState
    start: Params  # x, as the round began; () where nothing is averaged
    step: Int[Array, "*workers"]  # k in [0, τ), local steps of this round so far
    pieces: ArrayTree  # x in τ pieces, the first k of them averaged; () without stream


def distribute(
    optimizer: optax.GradientTransformation,
    strategy: Strategy,
    sync_period: int,
    axis_name: Hashable = WORKERS,
    stream: bool = False,
) -> optax.GradientTransformationExtraArgs:
    """Makes one optax transformation of an optimizer and a strategy.

    Use it in place of the optimizer, and hand it every worker's own gradients: it does
    all averaging itself. Every worker needs its own params and optimizer state, as
    `pmap` gives them (under `shard_map`, with `PartitionSpec("workers")`).

    Args:
      optimizer: any optax optimizer.
      strategy: how workers communicate.
      sync_period: τ, local steps in a round.
      axis_name: the mapped axis along which the workers lie, as named in the caller's
        `pmap` or mesh.
      stream: send a part of the models with every step, instead of all of them with
        the last one; for delayed strategies. The numbers stay the same.

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
    check_count("sync_period", sync_period)
    if stream:
        check_delayed("stream must be False", strategy)
    inner = optax.with_extra_args_support(optimizer)
    averages = strategy.mean_of != "nothing"

    def mean(tree: Params) -> Params:
        return worker_mean(tree, axis_name)

    def init(params: Params) -> DistributedState:
        check_params(params)
        # Copied: a caller who donates params and state may not share their buffers.
        start = jax.tree.map(jnp.copy, params) if averages else ()
        return DistributedState(
            opt_state=inner.init(params),
            strategy_state=strategy.init(params),
            start=start,
            step=jnp.zeros((), jnp.int32),
            pieces=cut(params, sync_period) if stream else (),
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
        check_num_workers(strategy, _axis_size(axis_name))
        grads, strategy_state = strategy.reduce_grads(
            updates, state.strategy_state, mean
        )
        updates, opt_state = inner.update(grads, state.opt_state, params, **extra)
        if not averages:
            return updates, state._replace(
                opt_state=opt_state, strategy_state=strategy_state
            )
        start, pieces = lax.cond(
            state.step == 0,
            lambda: (params, cut(params, sync_period) if stream else ()),
            lambda: (state.start, state.pieces),
        )
        if stream:
            pieces, updates = send_piece(pieces, state.step, updates, send=mean)
        step = (state.step + 1) % sync_period

        def mix(updates: Grads, state: StrategyState) -> tuple[Grads, StrategyState]:
            end = optax.apply_updates(params, updates)
            if stream:
                models = join(pieces, like=start)
            else:
                models = mean(start if strategy.mean_of == "start" else end)
            mixed, state = strategy.mix(start, end, models, state)
            return optax.tree.sub(mixed, params), state

        # All workers count alike, so all of them take the branch with the mean.
        updates, strategy_state = lax.cond(
            step == 0, mix, lambda *same: same, updates, strategy_state
        )
        return updates, DistributedState(opt_state, strategy_state, start, step, pieces)

    return optax.GradientTransformationExtraArgs(init, update)


def _axis_size(axis_name: Hashable) -> int:
    try:
        return lax.axis_size(axis_name)
    except NameError as error:
        raise ValueError(
            "update must run under pmap, shard_map or vmap over an axis "
            f"{axis_name!r}; name the axis of your own mapping with axis_name"
        ) from error
