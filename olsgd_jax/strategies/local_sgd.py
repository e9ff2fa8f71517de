"""Local SGD: a round ends by setting every worker to the mean of all models.

    xᵢ ← meanⱼ yⱼ

The paper does not say what happens to the local optimizer's momentum. Here a mix does
not change it: it stays with its worker.

If only the workers in P are present in a round,

    xᵢ ← mean of yⱼ over P      for i in P; else xᵢ stays

A returning worker starts from the model that it left with. With `slowmo(momentum=0)` it
starts from the last mean instead, as in federated averaging.

Reference: S. Stich, "Local SGD Converges Fast and Communicates Little", ICLR 2019,
arXiv:1805.09767.
"""

from olsgd_jax.strategies.base import NamedStrategy, Strategy
from olsgd_jax.types import Params, StrategyState


def local_sgd() -> Strategy:
    """Builds Local SGD.

    >>> from olsgd_jax import local_sgd
    >>> strategy = local_sgd()
    >>> strategy.mix(0.0, 1.0, 3.0, ())
    (3.0, ())
    """

    def mix(start: Params, end: Params, mean: Params, state: StrategyState):
        del start, end
        return mean, state

    return Strategy("local_sgd", mean_of="end", init=lambda params: (), mix=mix)


LOCAL_SGD = NamedStrategy(local_sgd, "Local SGD", args={})
