"""Config: every option of a training run, once, with its meaning and its default."""

import dataclasses
from collections.abc import Sequence
from typing import Annotated

import numpy as np

from olsgd_jax.training.config_checks import check_options
from olsgd_jax.types import Dtype, EvaluatedModel, Mapping, ModelStatePolicy

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
    Names of data sets, partitions, models and strategies are looked up by `train`,
    which knows them. An epoch is as many local steps as workers need to go through
    their examples once, on average.

    >>> from olsgd_jax.training import Config
    >>> Config(num_workers=8).strategy_args
    {'pullback': 0.6, 'anchor_momentum': 0.7}
    >>> Config(sync_period=0)
    Traceback (most recent call last):
    ValueError: sync_period must be at least 1, got 0
    """

    dataset: Annotated[str, "a name in DATASETS"] = "digits"
    data_dir: Annotated[str | None, "of data sets; None: TFDS_DATA_DIR"] = None
    partition: Annotated[str, "a name in PARTITIONS"] = "iid"
    concentration: Annotated[float, "of the partition dirichlet"] = 0.5
    reshuffle: Annotated[bool, "another order of the examples in every epoch"] = True
    augment: Annotated[bool, "crop and flip images at random"] = False

    model: Annotated[str, "a name in MODELS"] = "mlp"
    width: Annotated[int | None, "of the first layer; None: the model's own"] = None
    dropout: Annotated[float, "fraction of the hidden layer of mlp, in [0, 1)"] = 0.0
    dtype: Annotated[Dtype, "of the computation; parameters stay float32"] = "float32"
    model_state_policy: Annotated[
        ModelStatePolicy, "batch statistics stay local, or are averaged with the models"
    ] = "local"

    strategy: Annotated[str, "a name in STRATEGIES"] = "overlap_local_sgd"
    strategy_args: Annotated[
        dict[str, float] | None, "of the strategy; None: those of STRATEGY_ARGS"
    ] = None
    rated_velocity: Annotated[
        bool, "keep the strategy's velocity divided by the learning rate"
    ] = False
    num_workers: Annotated[int, "m"] = 4
    sync_period: Annotated[int, "local steps in a round, τ"] = 4
    long_first_round: Annotated[bool, "τ + 1 local steps in the first round"] = False
    num_rounds: int = 150
    mapping: Annotated[
        Mapping | None, "None: shard_map with enough devices, else vmap"
    ] = None

    batch_size: Annotated[int, "of one worker at one local step"] = 32
    learning_rate: Annotated[float, "base learning rate, γ"] = 0.1
    scale_learning_rate: Annotated[
        bool, "to learning_rate x num_workers x batch_size / 128, by the warm-up"
    ] = False
    warmup_epochs: Annotated[float, "from the base rate to the scaled one"] = 0.0
    decay_epochs: Annotated[
        Sequence[float], "after each the learning rate is a tenth"
    ] = ()
    momentum: Annotated[float, "Nesterov, of the optimizer; 0 is plain SGD"] = 0.9
    weight_decay: float = 1e-4
    decay_vectors: Annotated[bool, "decay norms and biases as well"] = True

    seed: Annotated[int, "of partition, order, first model, crops and dropout"] = 0
    evaluate: Annotated[
        Sequence[EvaluatedModel], "models that are tested; the first is in tables"
    ] = ("consensus",)
    evaluate_every: Annotated[int, "rounds; the last is always evaluated"] = 10

    def __post_init__(self) -> None:
        """Raises unless every option can be what it is."""
        for name, value in vars(self).items():
            # Numbers of NumPy are none of JSON's.
            plain = value.item() if isinstance(value, np.generic) else value
            object.__setattr__(self, name, plain)
        check_options(vars(self))
        # Lists, as JSON has them, become tuples, so that a config can be a key.
        for name in ("decay_epochs", "evaluate"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        args = self.strategy_args
        if args is None:
            args = STRATEGY_ARGS.get(self.strategy, {})
        # Copied: neither the table nor the caller's dict may change a frozen config.
        object.__setattr__(self, "strategy_args", dict(args))

    def num_steps(self, num_rounds: int) -> int:
        """Counts the local steps that a worker takes in the first rounds."""
        return num_rounds * self.sync_period + (
            self.long_first_round and num_rounds > 0
        )
