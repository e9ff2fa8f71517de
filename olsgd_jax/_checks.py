"""Checks of users' arguments; each returns, or raises and says what to do instead."""

import difflib
from collections.abc import Mapping

import numpy as np


def check_number(name: str, value: object, low: float, high: float, ends: str) -> None:
    """Raises unless `value` is a number between `low` and `high`.

    Args:
      name: the argument's name, for the message.
      value: the argument that the user passed.
      low: lower end.
      high: upper end.
      ends: brackets of the interval, as in "[]" or "[)".

    >>> from olsgd_jax.training import check_number
    >>> check_number("pullback", 1.5, 0, 1, "[]")
    Traceback (most recent call last):
    ValueError: pullback must be in [0, 1], got 1.5
    """
    kinds = int, float, np.integer, np.floating
    if isinstance(value, bool) or not isinstance(value, kinds):
        raise TypeError(f"{name} must be a number, got {value!r}")
    if isinstance(value, int) and abs(value) >= 2**1023:  # as a float it is infinite
        value = float("inf") if value > 0 else float("-inf")
    above = value >= low if ends[0] == "[" else value > low
    below = value <= high if ends[1] == "]" else value < high
    if not (above and below):
        interval = f"{ends[0]}{low:g}, {high:g}{ends[1]}"
        raise ValueError(f"{name} must be in {interval}, got {value}")


def check_count(name: str, value: object) -> None:
    """Raises unless `value` is a whole number in [1, 2**31).

    >>> from olsgd_jax.training import check_count
    >>> check_count("sync_period", 0)
    Traceback (most recent call last):
    ValueError: sync_period must be at least 1, got 0
    """
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} must be a whole number, got {value!r}")
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")
    if value >= 2**31:  # array sizes and step counts are int32
        raise ValueError(f"{name} must be below 2**31, got {value:.4g}")


def check_switch(name: str, value: object) -> None:
    """Raises unless `value` is True or False.

    >>> from olsgd_jax._checks import check_switch
    >>> check_switch("stochastic", "no")
    Traceback (most recent call last):
    TypeError: stochastic must be True or False, got 'no'
    """
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, got {value!r}")


def check_choice(
    name: str,
    value: object,
    choices: tuple[str, ...],
    instead: Mapping[str, str] | None = None,
) -> None:
    """Raises unless `value` is one of `choices`, and suggests the closest one.

    Args:
      name: what the value is of.
      value: the value.
      choices: the values that are allowed.
      instead: what to do instead of values that have a meaning elsewhere.

    >>> from olsgd_jax.training import check_choice
    >>> check_choice("model", "mpl", ("mlp", "resnet8"))
    Traceback (most recent call last):
    ValueError: model must be one of mlp, resnet8, got 'mpl'; did you mean 'mlp'?
    """
    if isinstance(value, str) and value in choices:
        return
    near = difflib.get_close_matches(str(value), choices, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    if instead and str(value) in instead:
        hint = f"; {instead[str(value)]}"
    raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}{hint}")


def check_seed(name: str, value: object) -> None:
    """Raises unless `value` is a whole number in [0, 2**32).

    >>> from olsgd_jax.training import check_seed
    >>> check_seed("seed", -1)
    Traceback (most recent call last):
    ValueError: seed must be in [0, 2**32), got -1
    """
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} must be a whole number, got {value!r}")
    if not 0 <= value < 2**32:  # JAX silently drops higher bits
        raise ValueError(f"{name} must be in [0, 2**32), got {value:.10g}")
