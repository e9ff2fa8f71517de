"""Options: fields of a class whose annotations describe them completely.

    sync_period: Annotated[int, check_count, "local steps in a round, τ"] = 4

An annotation holds the kind of the value, a constraint if the kind is not enough, and
the meaning. Checks and command lines are built from it. Records, which may come from
anywhere, are annotated in the same way.
"""

import functools
import math
import types
import typing
from collections.abc import Callable, Sequence
from typing import Annotated, Literal, NamedTuple, TypeAlias, get_args, get_origin

import numpy as np

from olsgd_jax._checks import check_choice, check_number, check_switch
from olsgd_jax.types import Option

Constraint: TypeAlias = Callable[[str, Option], None]
"""name, value -> None; raises if the value is not allowed."""


class OptionType(NamedTuple):
    """The annotation of an option."""

    kind: Option  # such as int, Literal["a", "b"] or Sequence[float]; never None
    may_be_none: bool
    constraint: Constraint | None
    meaning: str


def between(low: float, high: float, ends: str) -> Constraint:
    """Constrains a number to an interval.

    Args:
      low: lower end.
      high: upper end.
      ends: brackets of the interval, as in "[]" or "[)".

    >>> between(0, 1, "[)")("dropout", 1.0)
    Traceback (most recent call last):
    ValueError: dropout must be in [0, 1), got 1.0
    """
    return functools.partial(check_number, low=low, high=high, ends=ends)


def whole(low: int) -> Constraint:
    """Constrains a number to whole numbers of at least `low`.

    >>> whole(0)("times", 1.5)
    Traceback (most recent call last):
    TypeError: times must be a whole number, got 1.5
    """

    def check(name: str, value: Option) -> None:
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"{name} must be a whole number, got {value!r}")
        check_number(name, value, low, math.inf, "[)")

    return check


def option_types(options: type) -> dict[str, OptionType]:
    """Reads the annotations of all fields of a class.

    >>> from olsgd_jax.training import Config, option_types
    >>> option_types(Config)["sync_period"].meaning
    'local steps in a round, τ'
    """
    hints = typing.get_type_hints(options, include_extras=True)
    return {name: _option_type(hint) for name, hint in hints.items()}


def settle_options(options: object) -> None:
    """Checks all options, and converts their values to plain Python.

    NumPy scalars become Python numbers and lists become tuples, so that options can be
    hashed and are unchanged by a round trip through JSON.

    Args:
      options: an instance of a frozen dataclass, in its `__post_init__`.
    """
    for name, option_type in option_types(type(options)).items():
        value = getattr(options, name)
        value = value.item() if isinstance(value, np.generic) else value
        check_option(name, value, option_type)
        if get_origin(option_type.kind) is Sequence:
            value = tuple(value)
        object.__setattr__(options, name, value)


def check_option(name: str, value: Option, option_type: OptionType) -> None:
    """Raises unless an option may have this value."""
    kind, may_be_none, constraint, _ = option_type
    if value is None and may_be_none:
        return
    if get_origin(kind) is Sequence:
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise TypeError(f"{name} must be a list or a tuple, got {value!r}")
        for item in value:
            check_option(name, item, _option_type(*get_args(kind)))
    elif get_origin(kind) is dict:
        if not isinstance(value, dict):
            raise TypeError(f"{name} must be a dict of numbers, got {value!r}")
        for key, item in value.items():
            check_option(f"{name}[{key!r}]", item, _option_type(get_args(kind)[1]))
    elif get_origin(kind) is Literal:
        check_choice(name, value, get_args(kind))
    elif constraint is None:
        _CHECKS[kind](name, value)
    if constraint is not None:
        constraint(name, value)


def _option_type(hint: Option) -> OptionType:
    kind, constraint, meaning = hint, None, ""
    if get_origin(hint) is Annotated:
        kind, *said = get_args(hint)
        for word in said:
            if isinstance(word, str):
                meaning = word
            else:
                constraint = word
    may_be_none = get_origin(kind) in (types.UnionType, typing.Union)
    if may_be_none:
        [kind] = [x for x in get_args(kind) if x is not types.NoneType]
    return OptionType(kind, may_be_none, constraint, meaning)


def _check_name(name: str, value: Option) -> None:
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a name, got {value!r}")


_CHECKS: dict[Option, Constraint] = {
    bool: check_switch,
    str: _check_name,
    float: between(-math.inf, math.inf, "()"),
}
"""Checks of the kinds that need no constraint."""
