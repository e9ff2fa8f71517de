"""A mean in two exchanges, for devices that can send by themselves, but not add up.

    step 2 p        worker i hands part j of piece p to worker j, which adds up what it
                    gets: partⱼ of the mean is the sum of all parts j, each divided by m
    step 2 p + 1    worker j hands its part of the mean to everyone

So every local step has one exchange of a whole piece beside it, and a worker sends as
much as in a ring of all-reduce: 2 (m − 1) / m of its models in a round. The last of an
odd number of steps, which runs the program of all others, sends a piece for nothing.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Int

from olsgd_jax.drivers.forms.tiles import cut_tiles, join_tiles
from olsgd_jax.reductions.base import Reduction
from olsgd_jax.round.local_steps import Step, Steps, WorkerState
from olsgd_jax.round.participation import Outgoing
from olsgd_jax.round.worker_round import Form
from olsgd_jax.types import ArrayTree
from olsgd_jax.workers.axis import WORKERS, worker_count
from olsgd_jax.workers.mesh import FSDP
from olsgd_jax.workers.sharding import on_parts, part_specs


def exchange_form(otherwise: Form, mesh: Mesh | None = None) -> Form:
    """Averages one of ⌊τ / 2⌋ pieces of the models beside every two local steps.

    Args:
      otherwise: the form where τ is 1, where slots have several workers, or where the
        reduction is not made of exchanges.
      mesh: where the workers are.
    """

    def form(
        reduction: Reduction,
        outgoing: Outgoing,
        steps: Callable[..., Steps],
        num_steps: int,
    ):
        places = lax.axis_size(WORKERS)
        exchange = reduction.exchange
        if exchange is None or num_steps < 2 or places < worker_count():
            return otherwise(reduction, outgoing, steps, num_steps)
        models, state = outgoing
        num_parts = num_steps // 2 * places
        specs, spec = part_specs(models, mesh), PartitionSpec(None, FSDP)
        to_parts = on_parts(lambda x: cut_tiles(x, num_parts), mesh, (specs,), spec)
        from_parts = on_parts(join_tiles, mesh, (spec, specs), specs)
        parts = to_parts(models)
        pieces = jax.tree.map(lambda x: x.reshape(-1, places, *x.shape[1:]), parts)
        exchange = on_parts(exchange, mesh, (spec,), spec)
        is_even = num_steps % 2 == 0
        done = steps(pieces, carry=partial(exchange_piece, exchange, is_even))
        averaged = jax.tree.map(lambda x, y: x.reshape(y.shape), done.sent, parts)
        return (from_parts(averaged, models), state), done

    return form


def exchange_piece(
    exchange: Callable[[ArrayTree], ArrayTree],
    is_even: bool,
    pieces: ArrayTree,
    k: Int[Array, ""],
    step: Step,
    state: WorkerState,
) -> tuple:
    """Carries piece k // 2 half of its way, beside a local step.

    Args:
      exchange: hands part j of a piece to worker j.
      is_even: whether the number of steps is; the last of an odd one changes no piece.
      pieces: with leading axes (piece, worker whose part it is).
      k: the local step's number.
      step: runs it; nobody gets the piece before its params are there.
      state: what it starts from.

    Returns:
      The pieces, and what the step gives.
    """
    num_pieces = jax.tree.leaves(pieces)[0].shape[0]
    place = jnp.minimum(k // 2, num_pieces - 1)
    sending = jax.tree.map(lambda x: x[place], pieces)

    def arrived(old: jax.Array, x: jax.Array) -> jax.Array:
        # Divided first, as in `exact`.
        part = jnp.sum(x / x.shape[0], axis=0, keepdims=True)
        x = jnp.where(k % 2 == 0, jnp.broadcast_to(part, x.shape), x)
        return x if is_even else jnp.where(k < 2 * num_pieces, x, old)

    sent = exchange(sending)
    state, value = _enclosed(step, state)
    # Not the whole state: what no step changes then stays outside of the loop.
    sent, params = lax.optimization_barrier((sent, state.params))
    # What is sent next lies where it came from: no other memory is needed for it.
    new = jax.tree.map(arrived, sending, sent)
    put = jax.tree.map(lambda x, new: x.at[place].set(new), pieces, new)
    return put, (state._replace(params=params), value)


def _enclosed(step: Step, state: WorkerState) -> tuple:
    """Runs a step as a computation of its own, in an order of its own.

    Among the loop's instructions, half of its gradients would be put off to hide an
    exchange, and what they need be kept for them: for ResNet-18, a third more memory.
    """
    _, value = jax.eval_shape(step, state)
    # The compiler may not know that it is always so, or it would dissolve the branch.
    always = lax.optimization_barrier(jnp.array(True))
    return lax.cond(
        always, step, lambda state: (state, jnp.zeros(value.shape, value.dtype)), state
    )
