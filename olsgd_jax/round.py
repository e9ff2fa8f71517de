"""The round: tau local steps, one mean, one mix. The heart of the library.

start ──┬── local steps ──── end ──┬── mix ── next start
        └── mean of the starts ────┘           (a delayed strategy)
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import optax
from jaxtyping import Array, Float

from olsgd_jax.checks import check_choice
from olsgd_jax.local import WorkerState, make_local_steps
from olsgd_jax.model_state import averaged_part, mix_model_state
from olsgd_jax.strategies.base import Strategy
from olsgd_jax.types import Batch, Loss, Mean, ModelStatePolicy
from olsgd_jax.workers import worker_mean


class RoundRecord(NamedTuple):
    """What is measured of one round.

    >>> import jax.numpy as jnp
    >>> from olsgd_jax import RoundRecord
    >>> RoundRecord(loss=jnp.ones((4, 8))).loss.shape  # (worker, local step)
    (4, 8)
    """

    loss: Float[Array, "*workers steps"]  # of every local step, before its update


WorkerRound = Callable[[WorkerState, Batch], tuple[WorkerState, RoundRecord]]


def make_worker_round(
    loss: Loss,
    optimizer: optax.GradientTransformation,
    strategy: Strategy,
    model_state_policy: ModelStatePolicy = "local",
    mean: Mean = worker_mean,
) -> WorkerRound:
    """Builds one worker's part of a round, to be mapped over the workers.

    `make_round` maps and compiles it; call this one to map it yourself, with
    `on_workers` or with `jax.vmap`, `jax.pmap` or `jax.shard_map` over an axis
    `workers`.

    Args:
      loss: what is minimised; see `plain_loss` and `classification`.
      optimizer: any optax optimizer; its state stays with its worker.
      strategy: how workers communicate.
      model_state_policy: "local" keeps batch statistics and the like with their
        worker; "averaged" averages them with the models (see `model_state`).
      mean: averages a tree over workers.

    Returns:
      A function of a worker's state and its batches (leading axis: local step).

    >>> import jax, jax.numpy as jnp, optax
    >>> from olsgd_jax import init_state, local_sgd, make_worker_round, plain_loss
    >>> loss = plain_loss(lambda x, centre: (x - centre) ** 2 / 2)
    >>> state = init_state(
    ...     jnp.zeros(()), optax.sgd(0.5), local_sgd(), num_workers=2
    ... )
    >>> worker_round = make_worker_round(loss, optax.sgd(0.5), local_sgd())
    >>> batches = jnp.array([[4.0], [8.0]])  # (worker, step)
    >>> state, record = jax.vmap(worker_round, axis_name="workers")(state, batches)
    >>> state.params.tolist(), record.loss.tolist()
    ([3.0, 3.0], [[8.0], [32.0]])
    """
    check_choice("model_state_policy", model_state_policy, ("local", "averaged"))
    local_steps = make_local_steps(loss, optimizer, strategy, mean)

    def to_average(state: WorkerState):
        return averaged_part(state.model_state, model_state_policy)

    def worker_round(start: WorkerState, batches: Batch):
        with jax.named_scope("local_steps"):
            end, losses = local_steps(start, batches)
        # The order of these lines is not the order on the device. A mean of "start"
        # shares no data with the local steps, so XLA is free to overlap the two.
        with jax.named_scope("mean"):
            match strategy.mean_of:
                case "start":
                    models = mean((start.params, to_average(start)))
                case "end":
                    models = mean((end.params, to_average(end)))
                case "nothing":
                    models = end.params, mean(to_average(end))
        with jax.named_scope("mix"):
            params, strategy_state = strategy.mix(
                start.params, end.params, models[0], end.strategy_state
            )
            model_state = mix_model_state(end.model_state, models[1], strategy.mean_of)
        state = end._replace(
            params=params,
            model_state=model_state,
            strategy_state=strategy_state,
            round=end.round + 1,
        )
        return state, RoundRecord(losses)

    return worker_round
