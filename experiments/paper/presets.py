"""The paper's experiment at three scales: presets that name every switch.

                      paper              as_coded              cpu
    network           ResNet-18          ResNet-18             ResNet-8 of width 16
    batch size        128                128                   32
    epochs            300                300                   9
    rate decays at    150, 250           150, 250              4.5, 7.5
    warm-up epochs    5                  5                     1
    weight decay of   matrices           everything            matrices
    order of a shard  the same always    new in every epoch    new in every epoch
    non-IID           2,000 of a class   Dirichlet(0.5)        2,000 of a class
    velocity          v                  v / learning rate     v
    first round       τ steps            τ + 1 steps           τ steps
    accuracy of       the consensus      worker 0              the consensus

`paper` follows the text, `as_coded` the code that its authors published. All have 16
workers and a base rate of 0.1; the warm-up of the reference that they cite multiplies
it by workers x batch size / 128. At τ = 1 Overlap Local-SGD has a pullback of 0.5 and a
base rate of 0.15. Not followed: the last batch of an epoch is smaller in their code.
"""

import math

from olsgd_jax.training import Config, check_count, check_number
from olsgd_jax.types import Option

NUM_EXAMPLES = 50_000  # in the training set of CIFAR-10
MAX_EPOCHS = 1e6
MAX_RECORDS = 60  # per run, roughly; at most one per epoch

_PAPER: dict[str, Option] = {
    "dataset": "cifar10",
    "model": "resnet18",
    "augment": True,
    "reshuffle": False,
    "num_workers": 16,
    "batch_size": 128,
    "scale_learning_rate": True,
    "warmup_epochs": 5.0,
    "decay_epochs": (150.0, 250.0),
    "decay_vectors": False,
    "evaluate": ("consensus", "worker"),
}
_AS_CODED: dict[str, Option] = {
    **_PAPER,
    "reshuffle": True,
    "decay_vectors": True,
    "long_first_round": True,
    "evaluate": ("worker", "consensus"),
}
_CPU: dict[str, Option] = {
    **_PAPER,
    "model": "resnet8",
    "reshuffle": True,
    "batch_size": 32,
    "warmup_epochs": 1.0,
    "decay_epochs": (4.5, 7.5),
}
PRESETS = {"paper": (_PAPER, 300), "as_coded": (_AS_CODED, 300), "cpu": (_CPU, 9)}
"""Options and number of epochs by name."""

NON_IID = {"paper": "paper_non_iid", "as_coded": "dirichlet", "cpu": "paper_non_iid"}
"""The partition that each preset uses as non-IID data."""


def preset(
    name: str,
    strategy: str = "overlap_local_sgd",
    sync_period: int = 2,
    epochs: float | None = None,
    **options: Option,
) -> Config:
    """Makes a config from a preset.

    Args:
      name: "paper", "as_coded" or "cpu".
      strategy: how workers communicate.
      sync_period: τ.
      epochs: length of the run; by default the preset's. Warm-up and decays scale.
      **options: fields of the config that replace the preset's.
    """
    given, default_epochs = PRESETS[name]
    chosen = {**given, **_tuned(name, strategy, sync_period), **options}
    for count in ("num_workers", "batch_size"):
        check_count(count, chosen[count])
    check_count("sync_period", sync_period)
    if epochs is not None:
        check_number("epochs", epochs, 0, MAX_EPOCHS, "(]")
        stretch = epochs / default_epochs
        for key in ("warmup_epochs", "decay_epochs"):
            if key not in options:
                chosen[key] = _stretched(chosen[key], stretch)
    examples = chosen["num_workers"] * chosen["batch_size"] * sync_period
    num_epochs = epochs or default_epochs
    num_rounds = math.ceil(num_epochs * NUM_EXAMPLES / examples)
    chosen = {"num_rounds": num_rounds, **chosen}
    num_records = max(1, min(num_epochs, MAX_RECORDS))
    evaluate_every = max(1, int(chosen["num_rounds"] / num_records))
    chosen = {"evaluate_every": evaluate_every, **chosen}
    return Config(strategy=strategy, sync_period=sync_period, **chosen)


def _tuned(name: str, strategy: str, sync_period: int) -> dict[str, Option]:
    """Returns what the authors chose for their own strategy."""
    if strategy != "overlap_local_sgd":
        return {}
    options: dict[str, Option] = {"rated_velocity": name == "as_coded"}
    if sync_period == 1:
        options["strategy_args"] = {"pullback": 0.5, "anchor_momentum": 0.7}
        options["learning_rate"] = 0.15
    return options


def _stretched(epochs: Option, by: float) -> Option:
    if isinstance(epochs, tuple):
        return tuple(by * epoch for epoch in epochs)
    return by * epochs
