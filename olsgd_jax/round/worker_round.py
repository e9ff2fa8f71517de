"""The round: τ local steps, one mean, one mix. The heart of the library.

start ──┬── local steps ──── end ──┬── mix ── next start
        └── mean of the starts ────┘           (a delayed strategy)

Workers may miss a round: then it is the mean of those that are present (`presence`),
and the others keep what is theirs (`absence`).
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import optax
from jax import lax
from jaxtyping import Array, Float

from olsgd_jax.reductions.base import Reduction
from olsgd_jax.reductions.exact import exact
from olsgd_jax.round.local_steps import Carry, Gradient, Steps, WorkerState
from olsgd_jax.round.participation import Outgoing
from olsgd_jax.round.round_parts import make_round_parts
from olsgd_jax.strategies.base import Strategy
from olsgd_jax.types import ArrayTree, Batch, Loss, ModelStatePolicy, Present


class RoundRecord(NamedTuple):
    """What is measured of one round.

    >>> import jax.numpy as jnp
    >>> from olsgd_jax import RoundRecord
    >>> RoundRecord(loss=jnp.ones((4, 8))).loss.shape  # (worker, local step)
    (4, 8)
    """

    # Of every local step, before its update; NaN of a worker that was absent.
    loss: Float[Array, "*workers steps"]


WorkerRound = Callable[..., tuple[WorkerState, RoundRecord]]
"""state, batches, and present or nothing -> the next state, and the record."""


Form = Callable[
    [Reduction, Outgoing, Callable[..., Steps], int], tuple[Outgoing, Steps]
]
"""reduction, what to send, steps and their number -> what arrived, and the steps."""


def tree_form(
    reduction: Reduction,
    outgoing: Outgoing,
    steps: Callable[..., Steps],
    num_steps: int,
):
    """Reduces the message as it is: a collective for every array."""
    del num_steps
    # The barrier says that nobody needs the mean before the steps have ended.
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

    `make_round` maps and compiles it; call this one to map it yourself, with
    `on_workers` or with `jax.vmap`, `jax.pmap` or `jax.shard_map` over an axis
    `workers`.

    Args:
      loss: what is minimised; see `plain_loss` and `classification`.
      optimizer: any optax optimizer; its state stays with its worker.
      strategy: how workers communicate.
      model_state_policy: "local" keeps batch statistics and the like with their
        worker; "averaged" averages them with the models (see `model_state`).
      reduction: how messages become a mean.
      form: how a delayed mean runs concurrently with the local steps (see
        `drivers.forms`).
      gradient: makes the loss's gradient (see `drivers.platforms`).

    Returns:
      A function of a worker's state and its batches (leading axis: local step), and,
      for a round that some workers miss, whether this one is present.

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

        match strategy.mean_of:
            case "start":
                # The two share no data, so they can run at the same time.
                outgoing = parts.outgoing(start, present)
                num_steps = jax.tree.leaves(batches)[0].shape[0]
                sent, steps = form(reduction, outgoing, local_steps, num_steps)
            case "end" | "gradients":
                steps = local_steps()
                sent = reduction.reduce(*parts.outgoing(steps.end, present))
        with jax.named_scope("mix"):
            state = parts.mix(start, steps.end, sent, present)
        return state, RoundRecord(steps.losses)

    return worker_round
