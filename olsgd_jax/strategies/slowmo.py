"""SlowMo: Local SGD with momentum across rounds.

    v  ← β v + (x − meanᵢ yᵢ)      x: the common start of the round
    xᵢ ← x − s v

The paper keeps v divided by the learning rate γ:

    v  ← β v + (x − meanᵢ yᵢ) / γ
    xᵢ ← x − s γ v

which is the same at a constant rate. Pass `learning_rate` for this form. γ is the rate
of the round's last step. At γ = 0,

    v  ← β v,  xᵢ ← x − s (x − meanᵢ yᵢ)

which is the limit of x − s γ v as γ goes to 0 (see `velocity`).

The paper has three options for the local optimizer's momentum between rounds: keep it,
reset it or average it. This implementation keeps it.

Only gradients move the virtual model y = x − s β / (1 − β) v. If v is divided by γ, it
has γ v instead of v; at γ = 0 it is x.

If only the workers in P are present in a round,

    v  ← β v + (x − mean of yᵢ over P),  xᵢ ← x − s v      on every worker

If P is empty, both stay. There is only one x in the equations, so it is updated on
absent workers too, as v is. A returning worker starts from it, with its own optimizer
state.

Reference: J. Wang, V. Tantia, N. Ballas, M. Rabbat, "SlowMo: Improving
Communication-Efficient Distributed SGD with Slow Momentum", ICLR 2020,
arXiv:1910.00643.
"""

from typing import NamedTuple

import optax

from olsgd_jax._checks import check_number
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


class SlowMoState(NamedTuple):
    """The state between rounds, equal on all workers."""

    velocity: Params  # v
    num_steps: StepCount  # k, local steps so far


def slowmo(
    momentum: float,
    step_size: float = 1.0,
    learning_rate: optax.Schedule | None = None,
) -> Strategy:
    """Builds SlowMo.

    Args:
      momentum: β in [0, 1). 0 with a step size of 1 is Local SGD.
      step_size: s, above 0.
      learning_rate: the optimizer's schedule. Pass it to divide the velocity by the
        learning rate, as the paper does; this makes a difference only while the rate
        changes. The rate may be 0, as at the start of a warm-up.

    >>> import jax.numpy as jnp
    >>> from olsgd_jax import slowmo
    >>> strategy = slowmo(momentum=0.5)
    >>> start, end, mean = jnp.array(1.0), jnp.array(0.0), jnp.array(0.5)
    >>> params, state = strategy.mix(start, end, mean, strategy.init(start))
    >>> params, state = strategy.mix(params, end, mean, state)
    >>> params.item(), state.velocity.item()
    (0.25, 0.25)
    """
    check_number("momentum", momentum, 0, 1, "[)")
    check_number("step_size", step_size, 0, 1e30, "(]")
    check_schedule(learning_rate)

    def init(params: Params) -> SlowMoState:
        return SlowMoState(
            optax.tree.zeros_like(params), count_from_zero(learning_rate)
        )

    def mix(start: Params, end: Params, mean: Params, state: SlowMoState):
        del end
        rate = rate_at(learning_rate, state.num_steps)
        progress = optax.tree.sub(start, mean)
        velocity, move = accelerate(state.velocity, progress, momentum, rate)
        params = optax.tree.add_scale(start, -step_size, move)
        return params, state._replace(velocity=velocity)

    def virtual(mean: Params, state: SlowMoState) -> Params:
        rate = rate_at(learning_rate, state.num_steps)
        move = as_move(state.velocity, rate)
        return optax.tree.add_scale(mean, -step_size * momentum / (1 - momentum), move)

    return Strategy(
        name="slowmo",
        mean_of="end",
        init=init,
        mix=mix,
        reduce_grads=keep_grads if learning_rate is None else count_step,
        virtual=virtual,
        common=("params",),
    )


SLOWMO = NamedStrategy(slowmo, "SlowMo", args={"momentum": 0.7})
