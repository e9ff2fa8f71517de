"""Overlap Local-SGD: pull every worker toward an anchor that is one round old.

During a round worker i goes from xᵢ to yᵢ in τ local steps. The mean of the xᵢ
needs nothing those steps produce, so it crosses the network while they run:

    v  ← β v + (meanᵢ xᵢ − z)      anchor velocity; β = 0 gives z ← meanᵢ xᵢ
    z  ← z + v                     anchor
    xᵢ ← yᵢ − α (yᵢ − z)           pullback

The paper writes the first two lines at the end of the previous round, when the models
to be averaged are known. Here they are at the end of this round, when the mean has
arrived: every pullback gets the same values, and no worker waits for them.

Mixing does not move the virtual model, so only gradients move it:

    y = (1 − w) meanᵢ xᵢ + w z + c v,
    w = α (1 − β) / (1 − α β),  c = α β / (1 − α β)

with z and v already updated with meanᵢ xᵢ. At β = 0 it is the y of the paper's theorem.

The authors' code keeps v divided by the learning rate γ. Pass `learning_rate` for that:

    v  ← β v + (meanᵢ xᵢ − z) / γ,  z ← z + γ v        and c γ v instead of c v in y

γ is the rate of the step that produced the xᵢ, the last of the round before. At γ = 0,

    v  ← β v,  z ← meanᵢ xᵢ                            and y = meanᵢ xᵢ

which is the limit of z + γ v as γ goes to 0 (see `velocity`).

The paper does not say what happens to the local optimizer's momentum. Here a mix does
not change it.

If only the workers in P are present in a round,

    v  ← β v + (mean of xᵢ over P − z),  z ← z + v      on every worker
    xᵢ ← yᵢ − α (yᵢ − z)                                for i in P; else xᵢ stays

If P is empty, v and z stay too. The start of a returning worker is the model that it
left with. It counts in the mean of its first round back, and the end of that round
pulls it toward z. A mix without all workers does move the virtual model.

Reference: J. Wang, H. Liang, G. Joshi, "Overlap Local-SGD: An Algorithmic
Approach to Hide Communication Delays in Distributed SGD", ICASSP 2020,
arXiv:2002.09539.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from olsgd_jax._checks import check_number
from olsgd_jax.strategies.anchor import pull
from olsgd_jax.strategies.base import NamedStrategy, Strategy, keep_grads
from olsgd_jax.strategies.velocity import (
    StepCount,
    accelerate,
    as_move,
    check_schedule,
    count_from_zero,
    count_step,
    rate_at,
)
from olsgd_jax.types import Params


class OverlapState(NamedTuple):
    """The state between rounds, equal on all workers."""

    anchor: Params  # z
    velocity: Params  # v, or v / γ if learning_rate is given
    num_steps: StepCount  # k, local steps so far
    start_step: StepCount  # k at the start of the round


def overlap_local_sgd(
    pullback: float,
    anchor_momentum: float = 0.0,
    learning_rate: optax.Schedule | None = None,
) -> Strategy:
    """Builds Overlap Local-SGD.

    Args:
      pullback: α in [0, 1]. At 0 the workers never meet. At 1 they drop their own
        progress and restart from the anchor. The paper uses 0.6 for sync periods of 2
        and more, and 0.5 for 1.
      anchor_momentum: β in [0, 1). 0 is the vanilla variant; the paper uses 0.7.
      learning_rate: the optimizer's schedule. Pass it to divide the velocity by the
        learning rate, as in the authors' published code; the default follows the
        paper. The two differ only while the rate changes. The rate may be 0, as at the
        start of a warm-up.

    >>> import jax.numpy as jnp
    >>> from olsgd_jax import overlap_local_sgd
    >>> strategy = overlap_local_sgd(pullback=0.5)
    >>> start, end, mean = jnp.array(0.0), jnp.array(1.0), jnp.array(3.0)
    >>> params, state = strategy.mix(start, end, mean, strategy.init(start))
    >>> params.item(), state.anchor.item()
    (2.0, 3.0)
    """
    check_number("pullback", pullback, 0, 1, "[]")
    check_number("anchor_momentum", anchor_momentum, 0, 1, "[)")
    check_schedule(learning_rate)

    def init(params: Params) -> OverlapState:
        # Copied: the round donates params and anchor, which must not share a buffer.
        anchor = jax.tree.map(jnp.copy, params)
        velocity = optax.tree.zeros_like(params)
        steps = [count_from_zero(learning_rate) for _ in range(2)]
        return OverlapState(anchor, velocity, *steps)

    def rate_of(state: OverlapState) -> jax.Array | None:
        # The mean is of models from the start of the round, so the rate is too.
        return rate_at(learning_rate, state.start_step)

    def move_anchor(mean: Params, state: OverlapState) -> tuple[Params, Params]:
        gap = optax.tree.sub(mean, state.anchor)
        rate = rate_of(state)
        velocity, move = accelerate(state.velocity, gap, anchor_momentum, rate)
        return optax.tree.add(state.anchor, move), velocity

    def mix(start: Params, end: Params, mean: Params, state: OverlapState):
        del start
        anchor, velocity = move_anchor(mean, state)
        state = OverlapState(anchor, velocity, state.num_steps, state.num_steps)
        return pull(end, anchor, pullback), state

    def virtual(mean: Params, state: OverlapState) -> Params:
        anchor, velocity = move_anchor(mean, state)
        scale = 1 - pullback * anchor_momentum
        towards_anchor = pull(mean, anchor, pullback * (1 - anchor_momentum) / scale)
        to_come = as_move(velocity, rate_of(state))
        return optax.tree.add_scale(
            towards_anchor, pullback * anchor_momentum / scale, to_come
        )

    return Strategy(
        name="overlap_local_sgd",
        mean_of="start",
        init=init,
        mix=mix,
        reduce_grads=keep_grads if learning_rate is None else count_step,
        virtual=virtual,
    )


OVERLAP_LOCAL_SGD = NamedStrategy(
    overlap_local_sgd,
    "Overlap Local-SGD",
    args={"pullback": 0.6, "anchor_momentum": 0.7},
)
