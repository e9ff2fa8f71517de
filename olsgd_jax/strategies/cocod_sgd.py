"""CoCoD-SGD: apply every worker's own progress to a mean that is one round old.

    xᵢ ← meanⱼ xⱼ + (yᵢ − xᵢ)

The mean is of the models at the start of the round, so it crosses the network while the
local steps run. With momentum μ and step size ν,

    xᵢ ← m + μ (m − m₋) + ν (yᵢ − xᵢ)      m = meanⱼ xⱼ, m₋: that of the round before

and m₋ ← m; the first m₋ is the common start. The paper has μ = 0 and ν = 1. The
consensus moves with heavy-ball momentum. In the long run a local step counts
ν / (1 − μ) times, which is once with the default ν = 1 − μ; a worker differs from the
others by ν times its own progress.

Mixing does not move the virtual model, so only gradients move it:

    y = m + μ / (1 − μ) (m − m₋)

If only the workers in P are present in a round,

    xᵢ ← m + μ (m − m₋) + ν (yᵢ − xᵢ)      for i in P; else xᵢ stays

with m the mean of xⱼ over P, and m₋ ← m on every worker unless P is empty. The mean
includes the old starts of workers that return in this round.

Reference: S. Shen, L. Xu, J. Liu, X. Liang, Y. Cheng, "Faster Distributed Deep Net
Training: Computation and Communication Decoupled Stochastic Gradient Descent", IJCAI
2019, arXiv:1906.12043.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from olsgd_jax._checks import check_number
from olsgd_jax.strategies.base import NamedStrategy, Strategy
from olsgd_jax.types import Params, StrategyState


class CocodState(NamedTuple):
    """The state between rounds with momentum, equal on all workers."""

    previous: Params  # m₋


def cocod_sgd(momentum: float = 0.0, step_size: float | None = None) -> Strategy:
    """Builds CoCoD-SGD.

    Args:
      momentum: μ in [0, 1). 0 is the paper's.
      step_size: ν, above 0; by default 1 − μ.

    >>> from olsgd_jax import cocod_sgd
    >>> strategy = cocod_sgd()
    >>> strategy.mix(1.0, 1.5, 3.0, ())
    (3.5, ())
    """
    check_number("momentum", momentum, 0, 1, "[)")
    if step_size is None:
        step_size = 1 - momentum
    check_number("step_size", step_size, 0, 1e30, "(]")

    def add_progress(start: Params, end: Params, mean: Params) -> Params:
        return jax.tree.map(lambda x, y, m: m + step_size * (y - x), start, end, mean)

    if momentum == 0:

        def mix(start: Params, end: Params, mean: Params, state: StrategyState):
            return add_progress(start, end, mean), state

        return Strategy("cocod_sgd", mean_of="start", init=lambda params: (), mix=mix)

    def init(params: Params) -> CocodState:
        # Copied: the round donates params and state, which must not share a buffer.
        return CocodState(jax.tree.map(jnp.copy, params))

    def further(mean: Params, state: CocodState, by: float) -> Params:
        move = optax.tree.sub(mean, state.previous)
        return optax.tree.add_scale(mean, by, move)

    def mix_with_momentum(start: Params, end: Params, mean: Params, state: CocodState):
        mixed = add_progress(start, end, further(mean, state, momentum))
        return mixed, CocodState(mean)

    def virtual(mean: Params, state: CocodState) -> Params:
        return further(mean, state, momentum / (1 - momentum))

    return Strategy(
        name="cocod_sgd",
        mean_of="start",
        init=init,
        mix=mix_with_momentum,
        virtual=virtual,
    )


COCOD_SGD = NamedStrategy(cocod_sgd, "CoCoD-SGD", args={})
