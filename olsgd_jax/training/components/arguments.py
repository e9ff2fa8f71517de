"""Builders that a config names, called with the numbers that it gives."""

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from olsgd_jax.training.config import Config
from olsgd_jax.types import Option

Built = TypeVar("Built")
# Arguments that come from other options of a config.
_TOLD = ("num_workers", "learning_rate")


def built(
    kind: str,
    name: str,
    builder: Callable[..., Built],
    given: Mapping[str, float],
    told: Mapping[str, Option] | None = None,
) -> Built:
    """Calls a builder, and says what is wrong in the words of the config.

    Args:
      kind: name of the option that names the builder.
      name: its value.
      builder: what it stands for.
      given: the arguments that the config gives.
      told: arguments that come from other options.

    >>> from olsgd_jax import int8
    >>> built("reduction", "int8", int8, {"rank": 2})
    Traceback (most recent call last):
    ValueError: reduction_args must fit int8(error_feedback, stochastic), got ...
    """
    signature, told = inspect.signature(builder), told or {}
    try:
        signature.bind(**given, **told)
    except TypeError as error:
        names = [x for x in signature.parameters if x not in _TOLD]
        raise ValueError(
            f"{kind}_args must fit {name}({', '.join(names)}), "
            f"got {given}; pass {kind}_args=None for its defaults"
        ) from error
    given = {
        name: _as_flag(f"{kind}_args[{name!r}]", x)
        if isinstance(signature.parameters[name].default, bool)
        else x
        for name, x in given.items()
    }
    try:
        return builder(**given, **told)
    except (TypeError, ValueError) as error:
        # All arguments are numbers, so their values must be wrong.
        raise ValueError(f"{kind}_args: {error}") from error


def check_left_out(
    config: Config, options: Iterable[str], kind: str, name: str
) -> None:
    """Raises if a config sets options that what it names does not use.

    Args:
      config: options of the run.
      options: names of the options that are not used.
      kind: name of the option that names what does not use them.
      name: its value.

    >>> from olsgd_jax.training import Config
    >>> check_left_out(Config(dropout=0.5), ["dropout"], "model", "resnet8")
    Traceback (most recent call last):
    ValueError: dropout must be left out with model resnet8, which has no use ...
    """
    defaults = {field.name: field.default for field in dataclasses.fields(Config)}
    for option in options:
        value = getattr(config, option)
        if value != defaults[option]:
            raise ValueError(
                f"{option} must be left out with {kind} {name}, which has no use for "
                f"it, got {value}"
            )


def _as_flag(name: str, value: float) -> bool:
    if value not in (0, 1):
        raise ValueError(f"{name} must be 0 or 1, got {value:g}")
    return bool(value)
