"""The local steps of one worker.

for k in 0 … τ − 1:
    g ← gradient of the loss at x on batch k
    g ← the worker's own g, or a mean of all workers' (see `gradients`)
    x ← x + optimizer(g)
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Array, Float, Int, Key

from olsgd_jax.reductions.base import Reduction, of_message
from olsgd_jax.reductions.exact import exact
from olsgd_jax.round.difference import Difference
from olsgd_jax.round.gradients import mean_once, reduce_gradients
from olsgd_jax.round.loss_checks import check_loss, checked_loss
from olsgd_jax.round.optimizer_checks import check_optimizer
from olsgd_jax.round.optimizer_step import StepLoss, apply_optimizer, trained
from olsgd_jax.strategies.base import Strategy, check_strategy
from olsgd_jax.types import (
    ArrayTree,
    Batch,
    Loss,
    ModelState,
    OptState,
    Params,
    Present,
    ReductionState,
    StrategyState,
)


class PerMessage(NamedTuple):
    """A reduction's state, for each kind of message that a worker sends."""

    gradients: ReductionState = ()
    models: ReductionState | Difference = ()


class WorkerState(NamedTuple):
    """The state of one worker between rounds; made by `init_state`.

    >>> import jax.numpy as jnp, optax
    >>> from olsgd_jax import init_state, local_sgd
    >>> state = init_state(jnp.zeros(3), optax.sgd(0.1), local_sgd(), num_workers=4)
    >>> state.params.shape, state.round.tolist()
    ((4, 3), [0, 0, 0, 0])
    """

    params: Params  # xᵢ
    model_state: ModelState
    opt_state: OptState
    strategy_state: StrategyState
    key: Key[Array, "*workers"]  # seeds all of this worker's randomness; never changes
    round: Int[Array, "*workers"]  # r, rounds so far
    reduction_state: PerMessage = PerMessage()


class Steps(NamedTuple):
    """The result of a round's local steps."""

    end: WorkerState
    losses: Float[Array, " steps"]  # before each step's update; NaN if absent
    sent: ArrayTree  # the fragments after the last step


LocalSteps = Callable[..., Steps]
Step = Callable[[WorkerState], tuple[WorkerState, Float[Array, ""]]]
"""state -> the state after one local step, and the loss before it."""
Carry = Callable[[ArrayTree, Int[Array, ""], Step, WorkerState], tuple]
"""fragments, k, step k, state -> the fragments after the step, and its result."""
Gradient = Callable[..., Callable]
"""loss, has_aux -> its value and gradient, like `jax.value_and_grad`."""


def make_local_steps(
    loss: Loss,
    optimizer: optax.GradientTransformation,
    strategy: Strategy,
    reduction: Reduction,
    gradient: Gradient = jax.value_and_grad,
) -> LocalSteps:
    """Builds the local steps of one round.

    Args:
      loss: the loss to minimise.
      optimizer: any optax optimizer, including its learning-rate schedule. It may
        evaluate the loss itself, also at other params. If gradients are averaged, it
        gets the mean loss and cannot evaluate it elsewhere (see `optimizer_step`).
      strategy: how workers communicate.
      reduction: how gradients are averaged, if they are.
      gradient: differentiates the loss (see `drivers.platforms`).

    Returns:
      A function of a worker's state and batches (leading axis: step). Optional
      arguments are `fragments` of the outgoing message, with a function `carry` that
      advances them during every step without sharing data with it, and `present`:
      gradients are averaged over the workers that are present. An absent worker takes
      its steps too, and they are discarded later.
    """
    check_loss(loss)
    check_optimizer(optimizer)
    check_strategy(strategy)
    value_and_grads = gradient(checked_loss(loss), has_aux=True)
    averages_grads = strategy.mean_of == "gradients"
    # The loss is one number, which no reduction needs to round.
    of_loss = reduction if reduction.is_lossless else exact()

    def local_steps(
        state: WorkerState,
        batches: Batch,
        fragments: ArrayTree = (),
        carry: Carry | None = None,
        present: Present | None = None,
    ) -> Steps:
        round_key = jax.random.fold_in(state.key, state.round)
        sync_period = jax.tree.leaves(batches)[0].shape[0]

        def local_step(k: Int[Array, ""], batch: Batch, state: WorkerState):
            key = jax.random.fold_in(round_key, k)

            def evaluate(params: Params) -> tuple:
                return value_and_grads(params, state.model_state, batch, key)

            (value, model_state), grads = evaluate(trained(state.params))
            number = state.round * sync_period + k.astype(jnp.int32)
            kept, now = state.reduction_state, of_message(reduction, number)
            states = state.strategy_state, kept.gradients
            grads, (strategy_state, of_gradients) = reduce_gradients(
                strategy, now, grads, states, present
            )
            if averages_grads:
                mean_value = partial(mean_once, of_loss, value, present)
                of_step = StepLoss(grads, mean_value=mean_value)
            else:
                of_step = StepLoss(
                    grads,
                    value,
                    value_fn=lambda params: evaluate(params)[0][0],
                    grad_fn=lambda params, i: evaluate(params)[1],
                )
            params, opt_state = apply_optimizer(
                optimizer, state.params, state.opt_state, of_step
            )
            state = state._replace(
                params=params,
                model_state=model_state,
                opt_state=opt_state,
                strategy_state=strategy_state,
                reduction_state=kept._replace(gradients=of_gradients),
            )
            return state, value

        def step_and_carry(before: tuple[WorkerState, ArrayTree], inputs: tuple):
            state, fragments = before
            k, batch = inputs
            step = partial(local_step, k, batch)
            if carry is None:
                state, value = step(state)
            else:
                fragments, (state, value) = carry(fragments, k, step, state)
            return (state, fragments), value

        inputs = (jnp.arange(sync_period), batches)
        (end, sent), losses = lax.scan(step_and_carry, (state, fragments), inputs)
        if present is not None:
            losses = jnp.where(present, losses, jnp.nan)
        return Steps(end, losses, sent)

    return local_steps
