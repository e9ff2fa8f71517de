"""The outer optimizer of the DiLoCo family: it moves the models once per round.

DiLoCo's gradient is what a round took off the models, start − end. Its optimizer is SGD
with Nesterov momentum, at a rate of 0.7 and a momentum of 0.9.

Where the gradient is a round late, so much momentum diverges at small learning rates
already (see `theory.stability`). Delayed and eager DiLoCo have none by default.
"""

import inspect
from collections.abc import Callable, Mapping

import optax

from olsgd_jax._checks import check_number
from olsgd_jax.strategies.base import Strategy

NESTEROV = {"outer_learning_rate": 0.7, "outer_momentum": 0.9}
"""The outer optimizer of the papers, in numbers."""

WITHOUT_MOMENTUM = {**NESTEROV, "outer_momentum": 0.0}
"""The outer optimizer of gradients that are a round late."""


def nesterov(
    outer_learning_rate: float = NESTEROV["outer_learning_rate"],
    outer_momentum: float = NESTEROV["outer_momentum"],
) -> optax.GradientTransformation:
    """Builds SGD with Nesterov momentum.

    >>> import jax.numpy as jnp
    >>> outer = nesterov(outer_learning_rate=0.5, outer_momentum=0.0)
    >>> outer.update(jnp.array(2.0), outer.init(jnp.array(0.0)))[0].item()
    -1.0
    """
    check_number("outer_learning_rate", outer_learning_rate, 0, float("inf"), "()")
    check_number("outer_momentum", outer_momentum, 0, 1, "[)")
    # Without momentum there is no velocity to keep.
    momentum = outer_momentum or None
    return optax.sgd(outer_learning_rate, momentum, nesterov=momentum is not None)


def check_outer(outer_optimizer: object) -> None:
    """Raises unless `outer_optimizer` is an optax optimizer.

    >>> check_outer(0.7)
    Traceback (most recent call last):
    TypeError: outer_optimizer must be an optax optimizer, got 0.7; pass optax.sgd(...
    """
    if not isinstance(outer_optimizer, optax.GradientTransformation):
        raise TypeError(
            f"outer_optimizer must be an optax optimizer, got {outer_optimizer!r:.60}; "
            "pass optax.sgd(0.7, momentum=0.9, nesterov=True) or leave it out"
        )


def by_numbers(
    build: Callable[..., Strategy], defaults: Mapping[str, float]
) -> Callable[..., Strategy]:
    """Gives a builder that takes the numbers of `nesterov`, not an outer optimizer.

    >>> from olsgd_jax import diloco
    >>> by_numbers(diloco, NESTEROV)(outer_learning_rate=1.0).name
    'diloco'
    """
    own = inspect.signature(build).parameters
    of_outer = inspect.signature(nesterov).parameters

    def build_by_numbers(**numbers: float) -> Strategy:
        outer = {name: numbers.pop(name, x) for name, x in defaults.items()}
        return build(outer_optimizer=nesterov(**outer), **numbers)

    parameters = [x for name, x in own.items() if name != "outer_optimizer"]
    parameters += [x.replace(default=defaults[n]) for n, x in of_outer.items()]
    build_by_numbers.__signature__ = inspect.Signature(  # pyright: ignore[reportFunctionMemberAccess]
        [x.replace(kind=inspect.Parameter.KEYWORD_ONLY) for x in parameters]
    )
    return build_by_numbers
