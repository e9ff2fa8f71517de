"""DiLoCo: Local SGD whose rounds are the gradients of an outer optimizer.

    g  ← x − meanᵢ yᵢ              x: the common start of the round
    xᵢ ← x + outer(g)

With SGD of rate 1 as outer optimizer this is Local SGD; with SGD of rate s and momentum
β, it is SlowMo. The paper's outer optimizer is SGD with Nesterov momentum, at a rate of
0.7 and a momentum of 0.9. The mean waits for the ends; `delayed_diloco`,
`eager_diloco` and `streaming_diloco` do not.

The local optimizer's state stays with its worker, as in the paper.

If only the workers in P are present in a round,

    g ← x − mean of yᵢ over P,  xᵢ ← x + outer(g)      on every worker

If P is empty, nothing changes. There is only one x in the equations, so it is updated
on absent workers too, and a returning worker starts from it.

Reference: A. Douillard et al., "DiLoCo: Distributed Low-Communication Training of
Language Models", 2023, arXiv:2311.08105.
"""

from typing import NamedTuple

import optax

from olsgd_jax.strategies.base import NamedStrategy, Strategy
from olsgd_jax.strategies.outer import NESTEROV, by_numbers, check_outer, nesterov
from olsgd_jax.types import OptState, Params


class DilocoState(NamedTuple):
    """The state between rounds, equal on all workers."""

    outer: OptState


def diloco(outer_optimizer: optax.GradientTransformation | None = None) -> Strategy:
    """Builds DiLoCo.

    Args:
      outer_optimizer: any optax optimizer; the default is the paper's.

    >>> import jax.numpy as jnp, optax
    >>> from olsgd_jax import diloco
    >>> strategy = diloco(optax.sgd(0.5))
    >>> start, end, mean = jnp.array(1.0), jnp.array(0.0), jnp.array(0.5)
    >>> strategy.mix(start, end, mean, strategy.init(start))[0].item()
    0.75
    """
    outer = nesterov() if outer_optimizer is None else outer_optimizer
    check_outer(outer)

    def init(params: Params) -> DilocoState:
        return DilocoState(outer.init(params))

    def mix(start: Params, end: Params, mean: Params, state: DilocoState):
        del end
        grads = optax.tree.sub(start, mean)
        updates, outer_state = outer.update(grads, state.outer, start)
        return optax.apply_updates(start, updates), DilocoState(outer_state)

    return Strategy(
        name="diloco", mean_of="end", init=init, mix=mix, common=("params",)
    )


DILOCO = NamedStrategy(by_numbers(diloco, NESTEROV), "DiLoCo", args=NESTEROV)
