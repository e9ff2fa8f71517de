"""The round: τ local steps, one mean, one mix. The heart of the library.

start ──┬── local steps ──── end ──┬── mix ── next start
        └── mean of the starts ────┘           (a delayed strategy)

Workers may miss a round. The mean is then over the workers that are present
(`participation`), and the others keep their own state (`absence`).
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import optax
from jax import lax
from jaxtyping import Array, Float

from olsgd_jax.reductions.base import Reduction, of_message
from olsgd_jax.reductions.exact import exact
from olsgd_jax.round.local_steps import Carry, Gradient, Steps, WorkerState
from olsgd_jax.round.participation import Outgoing
from olsgd_jax.round.round_parts import make_round_parts
from olsgd_jax.strategies.base import Strategy
from olsgd_jax.types import ArrayTree, Batch, Loss, ModelStatePolicy, Present


class RoundRecord(NamedTuple):
    """The measurements of one round.

    >>> import jax.numpy as jnp
    >>> from olsgd_jax import RoundRecord
    >>> RoundRecord(loss=jnp.ones((4, 8))).loss.shape  # (worker, local step)
    (4, 8)
    """

    # The loss of each local step before its update; NaN for an absent worker.
    loss: Float[Array, "*workers steps"]


WorkerRound = Callable[..., tuple[WorkerState, RoundRecord]]
"""state, batches, and optionally present -> the next state, and the record."""


Form = Callable[
    [Reduction, Outgoing, Callable[..., Steps], int], tuple[Outgoing, Steps]
]
"""reduction, outgoing, steps, number of steps -> the reduction's result, the steps."""


def tree_form(
    reduction: Reduction,
    outgoing: Outgoing,
    steps: Callable[..., Steps],
    num_steps: int,
):
    """Reduces the message as it is, with one collective per array."""
    del num_steps
    # The barrier says that the mean is not needed before the steps have ended.
    return lax.optimization_barrier((reduction.reduce(*outgoing), steps()))


def make_worker_round(
    loss: Loss,
    optimizer: optax.GradientTransformation,
    strategy: Strategy,
    model_state_policy: ModelStatePolicy = "local",
    reduction: Reduction = exact(),
    form: Form = tree_form,
    gradient: Gradient = jax.value_and_grad,
) -> WorkerRound:
    """Builds one worker's part of a round, to be mapped over the workers.

    `make_round` maps and compiles it. Call this function to map it yourself, with
    `on_workers` or with `jax.vmap`, `jax.pmap` or `jax.shard_map` over an axis
    `workers`.

    Args:
      loss: the loss to minimise; see `plain_loss` and `classification`.
      optimizer: any optax optimizer; its state stays with its worker.
      strategy: how workers communicate.
      model_state_policy: "local" keeps batch statistics and other model state with
        their worker; "averaged" averages them with the models (see `model_state`).
      reduction: how messages become a mean.
      form: how a delayed mean runs concurrently with the local steps (see
        `drivers.forms`).
      gradient: differentiates the loss (see `drivers.platforms`).

    Returns:
      A function of a worker's state and its batches (leading axis local step). For a
      round that some workers miss, it also takes whether this worker is present.

    >>> import jax, jax.numpy as jnp, optax
    >>> from olsgd_jax import init_state, local_sgd, make_worker_round, plain_loss
    >>> loss = plain_loss(lambda x, centre: (x - centre) ** 2 / 2)
    >>> state = init_state(jnp.zeros(()), optax.sgd(0.5), local_sgd(), num_workers=2)
    >>> worker_round = make_worker_round(loss, optax.sgd(0.5), local_sgd())
    >>> batches = jnp.array([[4.0], [8.0]])  # (worker, step)
    >>> state, record = jax.vmap(worker_round, axis_name="workers")(state, batches)
    >>> state.params.tolist(), record.loss.tolist()
    ([3.0, 3.0], [[8.0], [32.0]])
    >>> present = jnp.array([False, True])
    >>> state, _ = jax.vmap(worker_round, axis_name="workers")(state, batches, present)
    >>> state.params.tolist()
    [3.0, 5.5]
    """
    parts = make_round_parts(
        loss, optimizer, strategy, model_state_policy, reduction, gradient
    )

    def worker_round(
        start: WorkerState, batches: Batch, present: Present | None = None
    ):
        def local_steps(fragments: ArrayTree = (), carry: Carry | None = None) -> Steps:
            with jax.named_scope("local_steps"):
                return parts.local_steps(start, batches, fragments, carry, present)

        now = of_message(reduction, start.round)
        match strategy.mean_of:
            case "start":
                # The two share no data, so they can run at the same time.
                outgoing = parts.outgoing(start, present)
                num_steps = jax.tree.leaves(batches)[0].shape[0]
                sent, steps = form(now, outgoing, local_steps, num_steps)
            case "end" | "gradients":
                steps = local_steps()
                sent = now.reduce(*parts.outgoing(steps.end, present))
        with jax.named_scope("mix"):
            state = parts.mix(start, steps.end, sent, present)
        return state, RoundRecord(steps.losses)

    return worker_round
