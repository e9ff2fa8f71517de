"""CoCoD-SGD: apply every worker's own progress to a mean that is one round old.

    xᵢ ← meanⱼ xⱼ + (yᵢ − xᵢ)

The mean is of the models at the start of the round, so it crosses the network while the
local steps run.

If only the workers in P are present in a round,

    xᵢ ← mean of xⱼ over P + (yᵢ − xᵢ)      for i in P; else xᵢ stays

The mean includes the old starts of workers that return in this round.

Reference: S. Shen, L. Xu, J. Liu, X. Liang, Y. Cheng, "Faster Distributed Deep Net
Training: Computation and Communication Decoupled Stochastic Gradient Descent", IJCAI
2019, arXiv:1906.12043.
"""

import jax

from olsgd_jax.strategies.base import NamedStrategy, Strategy
from olsgd_jax.types import Params, StrategyState


def cocod_sgd() -> Strategy:
    """Builds CoCoD-SGD.

    >>> from olsgd_jax import cocod_sgd
    >>> strategy = cocod_sgd()
    >>> strategy.mix(1.0, 1.5, 3.0, ())
    (3.5, ())
    """

    def mix(start: Params, end: Params, mean: Params, state: StrategyState):
        return jax.tree.map(lambda x, y, m: m + (y - x), start, end, mean), state

    return Strategy("cocod_sgd", mean_of="start", init=lambda params: (), mix=mix)


COCOD_SGD = NamedStrategy(cocod_sgd, "CoCoD-SGD", args={})
