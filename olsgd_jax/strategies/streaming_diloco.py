"""Streaming DiLoCo: every round averages another fragment of the models.

The models are cut into P fragments, and round r is the turn of fragment p = r mod P.
With z the shared model, and xᵢ and zₚ restricted to that fragment,

    zₚ ← zₚ + outerₚ(meanⱼ (zₚ − xⱼ))      xⱼ: the start of the round
    xᵢ ← yᵢ − α (yᵢ − zₚ)                  in fragment p; elsewhere xᵢ ← yᵢ

So a fragment is averaged every H = P τ local steps, and a round sends a P-th of a
model. The mean is of the starts, so it crosses the network while the local steps run,
and is used τ steps after it was sent: the paper's delay is a whole round here. The
pullback α leaves part of what a worker did in the meantime; the paper's mixing weight
is 1 − α.

With `delayed=False`, the round waits for the mean of the ends:

    zₚ ← zₚ + outerₚ(meanⱼ (zₚ − yⱼ))

and P = 1, α = 1 is DiLoCo.

A fragment has a P-th of every array, cut along its longest axis, so that all fragments
have the same size. In the paper a fragment has whole layers, every P-th one; the
equations are the same for every cut. An outer optimizer that treats an array as a whole
(Muon, clipping by a norm) gets parts.

If only the workers in P are present in a round, the mean is over those; zₚ is updated
on every worker, and an absent worker's xᵢ stays. If P is empty, nothing changes, and it
stays the fragment's turn.

Reference: A. Douillard et al., "Streaming DiLoCo with overlapping communication:
Towards a Distributed Free Lunch", 2025, arXiv:2501.18512.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jaxtyping import Array, Int

from olsgd_jax._checks import check_count, check_number
from olsgd_jax.strategies.anchor import pull
from olsgd_jax.strategies.base import NamedStrategy, Strategy
from olsgd_jax.strategies.outer import NESTEROV, by_numbers, check_outer, nesterov
from olsgd_jax.types import OptState, Params


class StreamingState(NamedTuple):
    """The state between rounds, equal on all workers."""

    anchor: Params  # z
    outer: OptState  # of every fragment, on a leading axis
    turn: Int[Array, ""]  # p


def streaming_diloco(
    num_fragments: int = 4,
    outer_optimizer: optax.GradientTransformation | None = None,
    pullback: float | None = None,
    delayed: bool = True,
) -> Strategy:
    """Builds Streaming DiLoCo.

    Args:
      num_fragments: P, the number of fragments. A fragment is averaged every
        num_fragments × sync_period local steps.
      outer_optimizer: any optax optimizer; the default is SGD with a rate of 0.7 and
        Nesterov momentum of 0.9, as in DiLoCo.
      pullback: α in (0, 1]. The default is the paper's 0.5 if the mean is delayed,
        and 1 if not.
      delayed: whether the mean is of the starts, so that it can overlap.

    >>> import jax.numpy as jnp, optax
    >>> from olsgd_jax import streaming_diloco
    >>> strategy = streaming_diloco(num_fragments=2, outer_optimizer=optax.sgd(1.0))
    >>> start, end = jnp.zeros(4), jnp.ones(4)
    >>> state = strategy.init(start)
    >>> strategy.message(end, state).tolist()
    [-1.0, -1.0]
    >>> params, state = strategy.mix(start, end, jnp.array([-1.0, -3.0]), state)
    >>> params.tolist(), state.anchor.tolist()
    ([1.0, 2.0, 1.0, 1.0], [1.0, 3.0, 0.0, 0.0])
    """
    check_count("num_fragments", num_fragments)
    if pullback is None:
        pullback = 0.5 if delayed else 1.0
    check_number("pullback", pullback, 0, 1, "(]")
    outer = nesterov() if outer_optimizer is None else outer_optimizer
    check_outer(outer)

    def take(tree: Params, turn: Int[Array, ""] | int) -> Params:
        def part(x: jax.Array) -> jax.Array:
            whole, axis, size = _filled(x, num_fragments)
            return lax.dynamic_slice_in_dim(whole, turn * size, size, axis)

        return jax.tree.map(part, tree)

    def put(tree: Params, fragment: Params, turn: Int[Array, ""]) -> Params:
        def joined(x: jax.Array, new: jax.Array) -> jax.Array:
            whole, axis, size = _filled(x, num_fragments)
            whole = lax.dynamic_update_slice_in_dim(whole, new, turn * size, axis)
            own = lax.slice_in_dim(whole, 0, max(x.shape, default=1), axis=axis)
            return own.reshape(x.shape)

        return jax.tree.map(joined, tree, fragment)

    def init(params: Params) -> StreamingState:
        every = jnp.arange(num_fragments)
        return StreamingState(
            # Copied: the round donates both, which must not share a buffer.
            anchor=jax.tree.map(jnp.copy, params),
            outer=jax.vmap(lambda p: outer.init(take(params, p)))(every),
            turn=jnp.zeros((), jnp.int32),
        )

    def message(params: Params, state: StreamingState) -> Params:
        return take(optax.tree.sub(state.anchor, params), state.turn)

    def mix(start: Params, end: Params, mean: Params, state: StreamingState):
        del start
        turn = state.turn
        anchor = take(state.anchor, turn)
        of_turn = jax.tree.map(lambda x: x[turn], state.outer)
        updates, of_turn = outer.update(mean, of_turn, anchor)
        anchor = optax.apply_updates(anchor, updates)
        mixed = pull(take(end, turn), anchor, pullback)
        all_outer = jax.tree.map(
            lambda x, new: x.at[turn].set(new), state.outer, of_turn
        )
        return put(end, mixed, turn), StreamingState(
            put(state.anchor, anchor, turn), all_outer, (turn + 1) % num_fragments
        )

    return Strategy(
        name="streaming_diloco",
        mean_of="start" if delayed else "end",
        init=init,
        message=message,
        mix=mix,
    )


def _filled(x: jax.Array, num_fragments: int) -> tuple[jax.Array, int, int]:
    """Fills up an array to whole fragments; gives their axis and size as well."""
    whole = jnp.atleast_1d(x)
    axis = int(np.argmax(whole.shape))
    size = -(-whole.shape[axis] // num_fragments)
    padding = [(0, 0)] * whole.ndim
    padding[axis] = (0, num_fragments * size - whole.shape[axis])
    return jnp.pad(whole, padding), axis, size


STREAMING_DILOCO = NamedStrategy(
    by_numbers(streaming_diloco, NESTEROV),
    "Streaming DiLoCo",
    args={"num_fragments": 4, **NESTEROV},
)
