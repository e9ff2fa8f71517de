"""What a round is made of, for one worker."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import optax

from olsgd_jax._checks import check_choice
from olsgd_jax.round.absence import keep_absent
from olsgd_jax.round.local_steps import (
    Gradient,
    LocalSteps,
    WorkerState,
    make_local_steps,
)
from olsgd_jax.round.model_state import averaged_part, mix_model_state
from olsgd_jax.round.participation import of_present, over_present
from olsgd_jax.strategies.base import Strategy, keep_grads
from olsgd_jax.types import (
    ArrayTree,
    Loss,
    Mean,
    ModelStatePolicy,
    Present,
)
from olsgd_jax.workers.axis import worker_count


class RoundParts(NamedTuple):
    """The parts; a driver decides what runs when."""

    local_steps: LocalSteps
    # what local steps change of a state, by name
    stepped: tuple[str, ...]
    # state, and present or nothing -> what of the state is averaged
    models: Callable[..., ArrayTree]
    # start, end, mean of the models, and present or nothing -> the next start
    mix: Callable[..., WorkerState]


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

    def models(state: WorkerState, present: Present | None = None) -> ArrayTree:
        params = () if strategy.mean_of == "nothing" else state.params
        averaged = params, averaged_part(state.model_state, model_state_policy)
        return averaged if present is None else of_present(averaged, present)

    def mixed(
        mix: Callable, start: WorkerState, end: WorkerState, mean: ArrayTree
    ) -> WorkerState:
        mean_params, mean_model_state = mean
        if strategy.mean_of == "nothing":
            mean_params = end.params
        params, strategy_state = mix(
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

    def mix(
        start: WorkerState,
        end: WorkerState,
        sent: ArrayTree,
        present: Present | None = None,
    ) -> WorkerState:
        if present is None:
            return mixed(strategy.mix, start, end, sent)
        mean, num_present = over_present(sent)
        mix_of_present = strategy.mix
        if strategy.mix_present is not None:
            fraction = num_present / worker_count()
            mix_of_present = partial(strategy.mix_present, fraction=fraction)
        after = mixed(mix_of_present, start, end, mean)
        return keep_absent(strategy, start, after, present, num_present)

    local_steps = make_local_steps(loss, optimizer, strategy, mean, gradient)
    stepped = ("params", "model_state", "opt_state")
    if strategy.reduce_grads is not keep_grads:
        stepped += ("strategy_state",)
    return RoundParts(local_steps, stepped, models, mix)
