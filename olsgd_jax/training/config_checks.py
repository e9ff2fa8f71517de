"""What the options of a config can be, each by itself."""

import math
from collections.abc import Mapping, Sequence
from typing import get_args

import olsgd_jax.types as types
from olsgd_jax._checks import (
    check_choice,
    check_count,
    check_number,
    check_seed,
)

_NAMES = ("dataset", "partition", "model", "strategy")
_SWITCHES = (
    "reshuffle",
    "augment",
    "rated_velocity",
    "long_first_round",
    "scale_learning_rate",
    "decay_vectors",
)
_COUNTS = (
    "width",
    "num_workers",
    "sync_period",
    "batch_size",
    "num_rounds",
    "evaluate_every",
)
_RANGES = {
    "concentration": (0, 1e12, "(]"),
    "dropout": (0, 1, "[)"),
    "learning_rate": (1e-30, 1e30, "[]"),
    "warmup_epochs": (0, 1e30, "[]"),
    "momentum": (0, 1, "[)"),
    "weight_decay": (0, 1e30, "[]"),
}
# What is beyond 1e30 is not finite in float32 after a few products.
_CHOICES = {
    "dtype": get_args(types.Dtype),
    "model_state_policy": get_args(types.ModelStatePolicy),
    "mapping": get_args(types.Mapping),
}
_MAY_BE_NONE = ("width", "mapping")


def check_options(options: Mapping[str, types.Option]) -> None:
    """Raises unless every option of a config can be what it is.

    >>> from olsgd_jax.training import Config
    >>> check_options(vars(Config()))
    >>> check_options(vars(Config()) | {"augment": "no"})
    Traceback (most recent call last):
    TypeError: augment must be True or False, got 'no'
    """
    for name in _NAMES:
        if not isinstance(options[name], str):
            raise TypeError(f"{name} must be a name, got {options[name]!r}")
    for name in _SWITCHES:
        if not isinstance(options[name], bool):
            raise TypeError(f"{name} must be True or False, got {options[name]!r}")
    given = {
        name: value
        for name, value in options.items()
        if value is not None or name not in _MAY_BE_NONE
    }
    for name in _COUNTS:
        if name in given:
            check_count(name, given[name])
    for name, (low, high, ends) in _RANGES.items():
        check_number(name, options[name], low, high, ends)
    for name, choices in _CHOICES.items():
        if name in given:
            check_choice(name, given[name], choices)
    check_seed("seed", options["seed"])
    _check_data_dir(options["data_dir"])
    _check_sequences(options["decay_epochs"], options["evaluate"])
    _check_strategy_args(options["strategy_args"])


def _check_data_dir(data_dir: types.Option) -> None:
    if data_dir is not None and not isinstance(data_dir, str):
        raise TypeError(f"data_dir must be a path as text, or None, got {data_dir!r}")


def _check_sequences(decay_epochs: types.Option, evaluate: types.Option) -> None:
    for name, value in (("decay_epochs", decay_epochs), ("evaluate", evaluate)):
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise TypeError(f"{name} must be a list or a tuple, got {value!r}")
    for epoch in decay_epochs:
        check_number("decay_epochs", epoch, 0, 1e30, "(]")
    for which in evaluate:
        check_choice("evaluate", which, get_args(types.EvaluatedModel))
    if not evaluate or len(set(evaluate)) < len(evaluate):
        raise ValueError(
            f"evaluate must name at least one model, each once, got {tuple(evaluate)}"
        )


def _check_strategy_args(args: types.Option) -> None:
    if args is None:
        return
    if not isinstance(args, dict):
        raise TypeError(f"strategy_args must be a dict of numbers, got {args!r}")
    for name, value in args.items():
        check_number(f"strategy_args[{name!r}]", value, -math.inf, math.inf, "()")
