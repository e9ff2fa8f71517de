"""Local SGD: every round ends with all workers at the mean of their models.

    xᵢ ← meanⱼ yⱼ

Left open by the paper: a mix does not touch the local optimizer's own momentum,
which stays with its worker.

Where only the workers in P are present in a round,

    xᵢ ← mean of yⱼ over P      for i in P; else xᵢ stays

and a worker that returns starts from the model it left with. `slowmo(momentum=0)` lets
it start from the last mean instead, as federated averaging does.

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
