"""Names of strategies and reductions in tables and figures."""

from collections.abc import Mapping

from olsgd_jax import STRATEGIES

LABELS = {name: x.label for name, x in STRATEGIES.items()}
POWERSGD = "sync_sgd", "low_rank"
"""The strategy and the reduction that make PowerSGD."""


def named(
    strategy: str,
    reduction: str = "exact",
    args: Mapping[str, float] | None = None,
    labels: Mapping[str, str] = LABELS,
) -> tuple[str, str]:
    """Names a strategy with its reduction.

    Args:
      strategy: name of the strategy.
      reduction: name of its reduction.
      args: arguments of the reduction.
      labels: names of strategies in prose.

    Returns:
      The name, and what to add to it; empty with the exact mean.

    >>> named("sync_sgd", "low_rank", {"rank": 4}), named("local_sgd", "int8")
    (('PowerSGD', 'rank 4'), ('Local SGD', 'int8'))
    """
    if (strategy, reduction) == POWERSGD:
        return "PowerSGD", f"rank {args['rank']:g}" if args else ""
    return labels.get(strategy, strategy), "" if reduction == "exact" else reduction
