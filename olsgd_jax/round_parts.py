"""What a round is made of, for one worker."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import optax

from olsgd_jax.checks import check_choice
from olsgd_jax.local import Gradient, LocalSteps, WorkerState, make_local_steps
from olsgd_jax.model_state import averaged_part, mix_model_state
from olsgd_jax.strategies.base import Strategy
from olsgd_jax.types import ArrayTree, Loss, Mean, ModelStatePolicy


class RoundParts(NamedTuple):
    """The parts; a driver decides what runs when."""

    local_steps: LocalSteps
    models: Callable[[WorkerState], ArrayTree]  # what of a state is averaged
    # start, end, mean of the models -> the next start
    mix: Callable[[WorkerState, WorkerState, ArrayTree], WorkerState]


def make_round_parts(
    loss: Loss,
    optimizer: optax.GradientTransformation,
    strategy: Strategy,
    model_state_policy: ModelStatePolicy,
    mean: Mean,
    gradient: Gradient = jax.value_and_grad,
) -> RoundParts:
    """Builds the parts of one worker's round; arguments as of `make_worker_round`."""
    check_choice("model_state_policy", model_state_policy, ("local", "averaged"))

    def models(state: WorkerState) -> ArrayTree:
        return state.params, averaged_part(state.model_state, model_state_policy)

    def mix(start: WorkerState, end: WorkerState, mean: ArrayTree) -> WorkerState:
        mean_params, mean_model_state = mean
        params, strategy_state = strategy.mix(
            start.params, end.params, mean_params, end.strategy_state
        )
        return end._replace(
            params=params,
            model_state=mix_model_state(
                end.model_state, mean_model_state, strategy.mean_of
            ),
            strategy_state=strategy_state,
            round=end.round + 1,
        )

    local_steps = make_local_steps(loss, optimizer, strategy, mean, gradient)
    return RoundParts(local_steps, models, mix)
