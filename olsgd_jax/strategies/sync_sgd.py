"""Fully synchronous SGD: every local step uses the mean gradient of all workers.

    gᵢ ← meanⱼ gⱼ        at every local step
    xᵢ ← yᵢ              nothing is left to mix

If only the workers in P are present in a round,

    gᵢ ← mean of gⱼ over P      on every worker, at every local step

If P is empty, no worker takes a step. There is only one model and one optimizer state.
Both are updated on absent workers too: models are never averaged, so a worker that fell
behind could not catch up.

Reference: P. Goyal et al., "Accurate, Large Minibatch SGD: Training ImageNet in 1
Hour", 2017, arXiv:1706.02677, for the form with an all-reduce.
"""

from olsgd_jax.strategies.base import NamedStrategy, Strategy


def sync_sgd() -> Strategy:
    """Builds fully synchronous SGD.

    >>> from olsgd_jax import sync_sgd
    >>> sync_sgd().mean_of
    'gradients'
    """
    return Strategy(
        name="sync_sgd",
        mean_of="gradients",
        init=lambda params: (),
        common=("params", "opt_state"),
    )


SYNC_SGD = NamedStrategy(sync_sgd, "Fully synchronous SGD", args={})
