"""Config: every option of a training run, once, with its default."""

import dataclasses
import math
from typing import get_args

from olsgd_jax.checks import check_choice, check_count, check_number
from olsgd_jax.types import EvaluatedModel, Mapping, ModelStatePolicy

STRATEGY_ARGS: dict[str, dict[str, float]] = {
    "overlap_local_sgd": {"pullback": 0.6, "anchor_momentum": 0.7},
    "slowmo": {"momentum": 0.7},
    "easgd": {"moving_rate": 0.9},
    "powersgd": {"rank": 2},
}
"""Default arguments of the strategies that need some, each from its own paper."""


@dataclasses.dataclass(frozen=True)
class Config:
    """Options of a training run.

    A config is whole: `strategy_args=None` becomes the strategy's own defaults when
    the config is made, so that a record says what ran. To change the strategy of a
    config, change both: `replace(config, strategy="slowmo", strategy_args=None)`.
    Names of data sets and strategies are looked up by `train`, which knows them.

    >>> from olsgd_jax import Config
    >>> Config(num_workers=8).strategy_args
    {'pullback': 0.6, 'anchor_momentum': 0.7}
    >>> Config(sync_period=0)
    Traceback (most recent call last):
    ValueError: sync_period must be at least 1, got 0
    """

    dataset: str = "digits"  # a name in data.datasets.DATASETS
    width: int = 64  # of the network's hidden layer
    dropout: float = 0.0  # fraction of the hidden layer, in [0, 1)
    strategy: str = "overlap_local_sgd"  # a name in STRATEGIES
    strategy_args: dict[str, float] | None = None  # None: those of STRATEGY_ARGS
    num_workers: int = 4  # m
    sync_period: int = 4  # τ, local steps in a round
    batch_size: int = 32  # of one worker at one local step
    num_rounds: int = 150
    learning_rate: float = 0.1  # γ
    momentum: float = 0.9  # Nesterov, of every worker's optimizer; 0 is plain SGD
    weight_decay: float = 1e-4
    seed: int = 0  # of partition, order of the data, first model and dropout
    evaluate: EvaluatedModel = "consensus"
    evaluate_every: int = 10  # rounds; the last round is always evaluated
    model_state_policy: ModelStatePolicy = "local"
    mapping: Mapping | None = None  # None: shard_map with enough devices, else vmap

    def __post_init__(self) -> None:
        """Raises unless every option can be what it is."""
        for name in _COUNTS:
            check_count(name, getattr(self, name))
        check_number("dropout", self.dropout, 0, 1, "[)")
        check_number("learning_rate", self.learning_rate, 0, math.inf, "()")
        check_number("momentum", self.momentum, 0, 1, "[)")
        check_number("weight_decay", self.weight_decay, 0, math.inf, "[)")
        _check_seed(self.seed)
        check_choice("evaluate", self.evaluate, get_args(EvaluatedModel))
        check_choice(
            "model_state_policy", self.model_state_policy, get_args(ModelStatePolicy)
        )
        if self.mapping is not None:
            check_choice("mapping", self.mapping, get_args(Mapping))
        args = self.strategy_args
        if args is None:
            args = STRATEGY_ARGS.get(self.strategy, {})
        for name, value in args.items():
            check_number(f"strategy_args[{name!r}]", value, -math.inf, math.inf, "()")
        # Copied: neither the table nor the caller's dict may change a frozen config.
        object.__setattr__(self, "strategy_args", dict(args))


_COUNTS = (
    "width",
    "num_workers",
    "sync_period",
    "batch_size",
    "num_rounds",
    "evaluate_every",
)


def _check_seed(seed: object) -> None:
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise TypeError(f"seed must be a whole number, got {seed!r}")
    if not 0 <= seed < 2**32:  # JAX drops higher bits without a word
        raise ValueError(f"seed must be in [0, 2**32), got {seed}")
