"""Momentum across rounds, with or without the learning rate in the velocity.

A round proposes a move of the anchor or of the models. Momentum turns it into

    v ← β v + move        then moves by v

or, with the move divided by the learning rate γ, as in the published code of Overlap
Local-SGD and in the SlowMo paper,

    v ← β v + move / γ    then moves by γ v

Both forms are the same at a constant rate. When a schedule lowers the rate, the second
form also scales down the velocity of earlier rounds.

At γ = 0, where a warm-up starts or a decay ends, the second form is defined by its
limit: γ v = γ β v + move tends to the move alone, and nothing is added to v,

    v ← β v               then moves by the move itself

A rate counts as 0 if 1 / γ overflows the dtype of the array.
"""

from typing import TypeAlias

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int

from olsgd_jax.types import Grads, Params, StrategyState


def accelerate(
    velocity: Params, move: Params, momentum: float, rate: jax.Array | None
) -> tuple[Params, Params]:
    """Adds a round's move to the velocity.

    Args:
      velocity: the velocity, v.
      move: the move that the round proposes.
      momentum: β in [0, 1).
      rate: γ, or None for the first form.

    Returns:
      The new velocity, and the move with momentum.

    >>> v, move = accelerate(jnp.array(1.0), jnp.array(4.0), momentum=0.5, rate=None)
    >>> v.item(), move.item()
    (4.5, 4.5)
    >>> rate = jnp.array(2.0)
    >>> v, move = accelerate(jnp.array(1.0), jnp.array(4.0), momentum=0.5, rate=rate)
    >>> v.item(), move.item()
    (2.5, 5.0)
    >>> zero = jnp.array(0.0)
    >>> v, move = accelerate(jnp.array(1.0), jnp.array(4.0), momentum=0.5, rate=zero)
    >>> v.item(), move.item()
    (0.5, 4.0)
    """
    if rate is None:
        velocity = optax.tree.add_scale(move, momentum, velocity)
        return velocity, velocity

    def per_rate(move: jax.Array) -> jax.Array:
        inverse = jnp.asarray(1 / rate, move.dtype)
        return jnp.where(_is_zero(rate, move), 0, inverse) * move

    def with_momentum(move: jax.Array, velocity: jax.Array) -> jax.Array:
        # Selected before the product, so that a rate above 0 gives exactly γ v.
        is_zero = _is_zero(rate, move)
        scale = jnp.where(is_zero, 1, jnp.asarray(rate, move.dtype))
        return scale * jnp.where(is_zero, move, velocity)

    new = jax.tree.map(per_rate, move)
    velocity = optax.tree.add_scale(new, momentum, velocity)
    return velocity, jax.tree.map(with_momentum, move, velocity)


def as_move(velocity: Params, rate: jax.Array | None) -> Params:
    """Gives γ v, the move that a velocity causes; 0 if the rate is 0."""
    return velocity if rate is None else scale_by_rate(rate, velocity)


def scale_by_rate(rate: jax.Array, tree: Params) -> Params:
    """Multiplies a tree by a rate, in the dtype of each of its arrays."""
    return jax.tree.map(lambda x: jnp.asarray(rate, jnp.result_type(x)) * x, tree)


def _is_zero(rate: jax.Array, like: jax.Array) -> jax.Array:
    return jnp.isinf(jnp.asarray(1 / rate, like.dtype))


StepCount: TypeAlias = Int[Array, ""] | tuple[()]
"""Local steps so far, or () if no schedule needs them."""


def count_from_zero(learning_rate: optax.Schedule | None) -> StepCount:
    """Gives an initial count of local steps, if there is a schedule."""
    return () if learning_rate is None else jnp.zeros((), jnp.int32)


def rate_at(
    learning_rate: optax.Schedule | None, num_steps: StepCount
) -> jax.Array | None:
    """Gives the rate of the last of `num_steps` local steps."""
    if learning_rate is None or isinstance(num_steps, tuple):
        return None
    return jnp.asarray(learning_rate(jnp.maximum(num_steps - 1, 0)))


def count_step(grads: Grads, state: StrategyState):
    """Counts a local step, so that the mix knows its learning rate."""
    return grads, state._replace(num_steps=state.num_steps + 1)


def check_schedule(learning_rate: object) -> None:
    """Raises unless `learning_rate` is None or a function of the step."""
    if learning_rate is not None and not callable(learning_rate):
        raise TypeError(
            "learning_rate must be the optimizer's schedule, a function of the step, "
            f"got {learning_rate!r}; leave it out at a constant rate, where it makes "
            "no difference"
        )
