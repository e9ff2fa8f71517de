"""The parts of one worker's round."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import optax

from olsgd_jax.reductions.base import Reduction, of_message
from olsgd_jax.round.absence import keep_absent
from olsgd_jax.round.difference import Difference, from_mean, own_state, to_send
from olsgd_jax.round.local_steps import (
    Gradient,
    LocalSteps,
    WorkerState,
    make_local_steps,
)
from olsgd_jax.round.model_state import (
    averaged_part,
    check_policy,
    mix_model_state,
)
from olsgd_jax.round.participation import Outgoing, arrived, outgoing
from olsgd_jax.strategies.base import Strategy, keep_grads
from olsgd_jax.types import (
    Loss,
    Message,
    ModelState,
    ModelStatePolicy,
    Params,
    Present,
    ReductionState,
    StrategyState,
)
from olsgd_jax.workers.axis import worker_count


class RoundParts(NamedTuple):
    """The parts of a round; a driver decides what runs when."""

    # whether the mean is of the start, so that it can run during the local steps
    is_delayed: bool
    local_steps: LocalSteps
    # names of the state's fields that local steps change
    stepped: tuple[str, ...]
    # state, and optionally present -> message and reduction state
    outgoing: Callable[..., Outgoing]
    # start, end, the reduction's result, and optionally present -> the next start
    mix: Callable[..., WorkerState]


class RoundMessage(NamedTuple):
    """What is averaged once per round."""

    strategy: Message  # what the strategy sends; () if that is gradients
    model_state: ModelState  # the averaged part


def message_of(
    strategy: Strategy,
    params: Params,
    strategy_state: StrategyState,
    model_state: ModelState,
    policy: ModelStatePolicy,
) -> RoundMessage:
    """Gives what a worker sends once per round.

    >>> from olsgd_jax import local_sgd, sync_sgd
    >>> message_of(local_sgd(), {"w": 1.0}, (), {}, "local")
    RoundMessage(strategy={'w': 1.0}, model_state={})
    >>> message_of(sync_sgd(), {"w": 1.0}, (), {}, "local").strategy
    ()
    """
    is_gradients = strategy.mean_of == "gradients"
    sent = () if is_gradients else strategy.message(params, strategy_state)
    return RoundMessage(sent, averaged_part(model_state, policy))


def make_round_parts(
    loss: Loss,
    optimizer: optax.GradientTransformation,
    strategy: Strategy,
    model_state_policy: ModelStatePolicy,
    reduction: Reduction,
    gradient: Gradient = jax.value_and_grad,
) -> RoundParts:
    """Builds the parts of one worker's round; arguments as in `make_worker_round`.

    >>> import optax
    >>> from olsgd_jax import exact, local_sgd, plain_loss
    >>> from olsgd_jax.round import make_round_parts
    >>> loss = plain_loss(lambda params, batch: ((params - batch) ** 2).sum())
    >>> parts = make_round_parts(loss, optax.sgd(1), local_sgd(), "local", exact())
    >>> parts.stepped
    ('params', 'model_state', 'opt_state')
    """
    check_policy(model_state_policy, reduction)

    def message(state: WorkerState) -> RoundMessage:
        return message_of(
            strategy,
            state.params,
            state.strategy_state,
            state.model_state,
            model_state_policy,
        )

    def models_out(state: WorkerState, present: Present | None = None) -> Outgoing:
        kept, part = (
            state.reduction_state.models,
            of_message(reduction, state.round).part,
        )
        sent = part.take(to_send(message(state), kept))
        return outgoing(reduction, sent, own_state(kept), present)

    def mixed(
        mix: Callable,
        start: WorkerState,
        end: WorkerState,
        mean: Message,
        kept: ReductionState | Difference,
    ) -> WorkerState:
        mean_sent, mean_model_state = mean
        if strategy.mean_of == "gradients":
            mean_sent = end.params
        params, strategy_state = mix(
            start.params, end.params, mean_sent, end.strategy_state
        )
        return end._replace(
            params=params,
            model_state=mix_model_state(
                end.model_state, mean_model_state, strategy.mean_of
            ),
            strategy_state=strategy_state,
            round=end.round + 1,
            reduction_state=end.reduction_state._replace(models=kept),
        )

    def mix(
        start: WorkerState,
        end: WorkerState,
        sent: Outgoing,
        present: Present | None = None,
    ) -> WorkerState:
        before = start.reduction_state.models
        mean, own, num_present = arrived(reduction, sent, own_state(before), present)
        mean, kept = from_mean(mean, own, before)
        part = of_message(reduction, start.round).part
        mean = part.put(mean, message(start if is_delayed else end))
        if present is None or num_present is None:
            return mixed(strategy.mix, start, end, mean, kept)
        mix_of_present = strategy.mix
        if strategy.mix_present is not None:
            fraction = num_present / worker_count()
            mix_of_present = partial(strategy.mix_present, fraction=fraction)
        after = mixed(mix_of_present, start, end, mean, kept)
        return keep_absent(strategy, start, after, present, num_present)

    is_delayed = strategy.mean_of == "start"
    local_steps = make_local_steps(loss, optimizer, strategy, reduction, gradient)
    stepped = ("params", "model_state", "opt_state")
    if strategy.reduce_grads is not keep_grads:
        stepped += ("strategy_state",)
    if strategy.mean_of == "gradients":
        stepped += ("reduction_state",)
    return RoundParts(is_delayed, local_steps, stepped, models_out, mix)
