"""Config: every option of a training run, once, with its meaning and its default."""

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from typing import Annotated, Literal

from olsgd_jax._checks import check_count, check_seed
from olsgd_jax.reductions import REDUCTIONS
from olsgd_jax.strategies import STRATEGIES
from olsgd_jax.training.options import between, settle_options, whole
from olsgd_jax.types import Dtype, EvaluatedModel, Mapping, ModelStatePolicy, Option


def _check_path(name: str, value: Option) -> None:
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a path as text, or None, got {value!r}")


def _check_each_once(name: str, value: Option) -> None:
    if not value or len(set(value)) < len(value):
        raise ValueError(
            f"{name} must name at least one model, each once, got {tuple(value)}"
        )


# Beyond 1e30, a few products overflow in float32.
_positive = between(1e-30, 1e30, "[]")
_not_negative = between(0, 1e30, "[]")
_after_start = between(0, 1e30, "(]")
_below_1 = between(0, 1, "[)")


def _defaults(builder: Callable) -> dict[str, float]:
    parameters = inspect.signature(builder).parameters.values()
    # Arguments are numbers: 0 or 1 for no or yes.
    return {
        x.name: int(x.default) if isinstance(x.default, bool) else x.default
        for x in parameters
    }


@dataclasses.dataclass(frozen=True)
class Config:
    """Options of a training run.

    A config is complete: `strategy_args=None` becomes the strategy's defaults when the
    config is made, and what `reduction_args` leaves out the reduction's, so that a
    record says what ran. To change the strategy of a config, change both:
    `replace(config, strategy="slowmo", strategy_args=None)`. `train` looks up the names
    of data sets, partitions, models, optimizers, strategies and reductions. An epoch is
    the number of local steps in which workers go through their examples once, on
    average.

    >>> from olsgd_jax.training import Config
    >>> Config(num_workers=8).strategy_args
    {'pullback': 0.6, 'anchor_momentum': 0.7}
    >>> Config(reduction="int8", reduction_args={"stochastic": 1}).reduction_args
    {'error_feedback': 1.0, 'stochastic': 1}
    >>> Config(sync_period=0)
    Traceback (most recent call last):
    ValueError: sync_period must be at least 1, got 0
    """

    dataset: Annotated[str, "a name in DATASETS"] = "digits"
    data_dir: Annotated[
        str | None, _check_path, "directory of data sets; None: TFDS_DATA_DIR"
    ] = None
    context: Annotated[
        int, check_count, "length of the windows of a text, in characters"
    ] = 64
    partition: Annotated[str, "a name in PARTITIONS"] = "iid"
    concentration: Annotated[
        float, between(0, 1e12, "(]"), "concentration of the partition dirichlet"
    ] = 0.5
    reshuffle: Annotated[bool, "new order of the examples in every epoch"] = True
    augment: Annotated[bool, "crop and flip images at random"] = False

    model: Annotated[str, "a name in MODELS"] = "mlp"
    width: Annotated[
        int | None, check_count, "width of the first layer; None: the model's own"
    ] = None
    depth: Annotated[
        int | None,
        check_count,
        "hidden layers of mlp, layers of transformer; None: the model's own",
    ] = None
    num_heads: Annotated[
        int | None, check_count, "heads of transformer; None: the model's own"
    ] = None
    tie_weights: Annotated[
        bool, "one matrix for inputs and logits of transformer, instead of two"
    ] = True
    dropout: Annotated[
        float, _below_1, "dropout rate in mlp and transformer, in [0, 1)"
    ] = 0.0
    dtype: Annotated[Dtype, "dtype of the computation; parameters are float32"] = (
        "float32"
    )
    model_state_policy: Annotated[
        ModelStatePolicy, "keep batch statistics local, or average them with the models"
    ] = "local"

    strategy: Annotated[str, "a name in STRATEGIES"] = "overlap_local_sgd"
    # A dict cannot be hashed. Configs that differ only in it are still unequal.
    strategy_args: Annotated[
        dict[str, float] | None, "arguments of the strategy; None: its own"
    ] = dataclasses.field(default=None, hash=False)
    rated_velocity: Annotated[
        bool, "store the strategy's velocity divided by the learning rate"
    ] = False
    reduction: Annotated[str, "a name in REDUCTIONS"] = "exact"
    reduction_args: Annotated[
        dict[str, float] | None, "arguments of the reduction; None: its own"
    ] = dataclasses.field(default=None, hash=False)
    num_workers: Annotated[int, check_count, "number of workers, m"] = 4
    sync_period: Annotated[int, check_count, "local steps in a round, τ"] = 4
    long_first_round: Annotated[bool, "τ + 1 local steps in the first round"] = False
    num_rounds: Annotated[int, check_count, "number of rounds of the run"] = 150
    mapping: Annotated[
        Mapping | None,
        "how workers run; None: shard_map if there are devices, else vmap",
    ] = None

    batch_size: Annotated[int, check_count, "examples per worker and local step"] = 32
    optimizer: Annotated[str, "a name in OPTIMIZERS"] = "sgd"
    learning_rate: Annotated[float, _positive, "base learning rate, γ"] = 0.1
    scale_learning_rate: Annotated[
        bool, "warm up to learning_rate x num_workers x batch_size / 128"
    ] = False
    schedule: Annotated[
        Literal["steps", "warmup_cosine"],
        "steps: warm up and decay by epochs; warmup_cosine: rise from 0, then fall "
        "along a cosine until the last local step",
    ] = "steps"
    warmup_epochs: Annotated[
        float, _not_negative, "steps: epochs from the base rate to the scaled one"
    ] = 0.0
    decay_epochs: Annotated[
        Sequence[Annotated[float, _after_start]],
        "steps: epochs after which the learning rate falls to a tenth",
    ] = ()
    warmup_steps: Annotated[
        int, whole(0), "warmup_cosine: local steps until the full rate"
    ] = 0
    final_fraction: Annotated[
        float,
        between(0, 1, "[]"),
        "warmup_cosine: the last learning rate, as a fraction of the full one",
    ] = 0.1
    momentum: Annotated[
        float, _below_1, "Nesterov momentum of sgd and muon, β₁ of adamw; 0: none"
    ] = 0.9
    beta2: Annotated[
        float, _below_1, "decay of mean squared gradients in adamw and muon, β₂"
    ] = 0.999
    clip_norm: Annotated[
        float | None, _positive, "largest norm of a worker's gradient; None: any norm"
    ] = None
    weight_decay: Annotated[float, _not_negative, "weight decay of the optimizer"] = (
        1e-4
    )
    decay_vectors: Annotated[bool, "apply weight decay to norms and biases too"] = True

    seed: Annotated[
        int, check_seed, "seed of partition, order, first model, crops and dropout"
    ] = 0
    evaluate: Annotated[
        Sequence[EvaluatedModel],
        _check_each_once,
        "models to evaluate; tables show the first",
    ] = ("consensus",)
    evaluate_every: Annotated[
        int, check_count, "rounds between evaluations; the last round always has one"
    ] = 10

    def __post_init__(self) -> None:
        """Checks all options, and fills in arguments of strategy and reduction."""
        settle_options(self)
        strategy_args, reduction_args = self.strategy_args, self.reduction_args or {}
        if strategy_args is None and self.strategy in STRATEGIES:
            strategy_args = STRATEGIES[self.strategy].args
        if self.reduction in REDUCTIONS:
            reduction_args = {**_defaults(REDUCTIONS[self.reduction]), **reduction_args}
        # Copied, so that a config does not change with the registry or the caller.
        object.__setattr__(self, "strategy_args", dict(strategy_args or {}))
        object.__setattr__(self, "reduction_args", dict(reduction_args))

    def num_steps(self, num_rounds: int) -> int:
        """Counts the local steps that a worker takes in the first rounds."""
        return num_rounds * self.sync_period + (
            self.long_first_round and num_rounds > 0
        )
