"""EASGD: elastic forces pull the workers and the anchor toward each other.

    xᵢ ← yᵢ − a (yᵢ − z)
    z  ← z + a Σᵢ (yᵢ − z)         both from the old z, one pull each way

The second line is z ← z + m a (meanᵢ yᵢ − z): the anchor moves by the fraction m a, its
moving rate, of its distance to the mean. Above 1 it overshoots, and from 2 − a on it
moves further away every round. With Nesterov momentum in the local optimizer, this is
EAMSGD.

The mix preserves Σᵢ xᵢ + z, so the virtual model is y = (m meanᵢ xᵢ + z) / (m + 1).

If only the p workers in P are present in a round, only they pull the anchor:

    xᵢ ← yᵢ − a (yᵢ − z)                                   for i in P; else xᵢ stays
    z  ← z + a Σᵢ (yᵢ − z) = z + p a (mean of yᵢ over P − z)     on every worker

with the sum over P. The mix preserves Σᵢ xᵢ + z, summed over all m workers.

Reference: S. Zhang, A. Choromanska, Y. LeCun, "Deep learning with Elastic Averaging
SGD", NeurIPS 2015, arXiv:1412.6651.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from olsgd_jax._checks import check_count, check_number
from olsgd_jax.strategies.anchor import pull
from olsgd_jax.strategies.base import NamedStrategy, Strategy
from olsgd_jax.types import Params


class EasgdState(NamedTuple):
    """The state between rounds, equal on all workers."""

    anchor: Params  # z


def easgd(moving_rate: float, num_workers: int) -> Strategy:
    """Builds EASGD in its symmetric form.

    Args:
      moving_rate: m a in (0, 1], the fraction of its distance to the workers' mean by
        which a mix moves the anchor. Every worker's pullback is a = moving_rate /
        num_workers.
      num_workers: number of workers, m.

    >>> import jax.numpy as jnp
    >>> from olsgd_jax import easgd
    >>> strategy = easgd(moving_rate=0.8, num_workers=2)
    >>> start, end, mean = jnp.array(0.0), jnp.array(1.0), jnp.array(2.0)
    >>> params, state = strategy.mix(start, end, mean, strategy.init(start))
    >>> round(params.item(), 6), round(state.anchor.item(), 6)
    (0.6, 1.6)
    """
    check_count("num_workers", num_workers)
    check_number("moving_rate", moving_rate, 0, float("inf"), "()")
    if moving_rate > 1:
        diverges = moving_rate + moving_rate / num_workers >= 2
        raise ValueError(
            f"moving_rate must be at most 1, got {moving_rate}: the anchor would "
            f"overshoot the mean of the workers{' and diverge' if diverges else ''}; "
            "it is num_workers times the pullback of one worker"
        )

    def init(params: Params) -> EasgdState:
        # Copied: the round donates params and anchor, which must not share a buffer.
        return EasgdState(jax.tree.map(jnp.copy, params))

    def mix(start: Params, end: Params, mean: Params, state: EasgdState):
        del start
        params = pull(end, state.anchor, moving_rate / num_workers)
        return params, EasgdState(pull(state.anchor, mean, moving_rate))

    def mix_present(
        start: Params,
        end: Params,
        mean: Params,
        state: EasgdState,
        fraction: Float[Array, ""],
    ):
        def move(z: jax.Array, y: jax.Array) -> jax.Array:
            return pull(z, y, moving_rate * fraction.astype(z.dtype))

        params, _ = mix(start, end, mean, state)
        return params, EasgdState(jax.tree.map(move, state.anchor, mean))

    def virtual(mean: Params, state: EasgdState) -> Params:
        return pull(mean, state.anchor, 1 / (num_workers + 1))

    return Strategy(
        name="easgd",
        mean_of="end",
        init=init,
        mix=mix,
        virtual=virtual,
        num_workers=num_workers,
        mix_present=mix_present,
    )


EASGD = NamedStrategy(easgd, "EASGD", args={"moving_rate": 0.9})
