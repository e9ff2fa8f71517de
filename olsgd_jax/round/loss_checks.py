"""Checks of the user's loss: its arguments and its return value."""

import inspect

import jax.numpy as jnp
import numpy as np

from olsgd_jax._tree_checks import check_like
from olsgd_jax.types import Batch, Loss, ModelState, Params

_PLAIN = "wrap one of params and batch alone: plain_loss(loss)"


def check_loss(loss: object) -> None:
    """Raises unless `loss` is a function of params, model_state, batch and key.

    >>> check_loss(lambda params, batch: 0.0)
    Traceback (most recent call last):
    TypeError: loss must take params, model_state, batch and key, got ...
    """
    if not callable(loss):
        raise TypeError(
            "loss must be a function of params, model_state, batch and key, got "
            f"{loss!r:.60}; {_PLAIN}"
        )
    try:
        signature = inspect.signature(loss)
    except (TypeError, ValueError):  # the callable has no signature
        return
    try:
        signature.bind(*"pmbk")
    except TypeError as error:
        raise TypeError(
            "loss must take params, model_state, batch and key, got "
            f"{getattr(loss, '__name__', 'one')}{signature}; {_PLAIN}"
        ) from error


def checked_loss(loss: Loss) -> Loss:
    """Wraps a loss to check its return value while it is traced.

    >>> loss = checked_loss(lambda params, model_state, batch, key: params)
    >>> loss(jnp.zeros(()), {}, jnp.zeros(()), None)
    Traceback (most recent call last):
    TypeError: loss must return (value, model_state), got ...
    """

    def checked(params: Params, model_state: ModelState, batch: Batch, key):
        result = loss(params, model_state, batch, key)
        if not (isinstance(result, tuple) and len(result) == 2):
            raise TypeError(
                f"loss must return (value, model_state), got {_kind(result)}; {_PLAIN}"
            )
        value, new = result
        if isinstance(value, (tuple, list, dict)):
            raise TypeError(
                f"loss must return one number, got a {type(value).__name__} of "
                f"{len(value)}; return the loss alone, and keep metrics in model_state"
            )
        if np.shape(value) != ():
            raise TypeError(
                f"loss must return one number, got shape {np.shape(value)}; average "
                "it, as in jnp.mean(value)"
            )
        if not jnp.issubdtype(jnp.result_type(value), jnp.floating):
            raise TypeError(
                "loss must return a floating-point number, got "
                f"{jnp.result_type(value)}; return value.astype(jnp.float32), if it "
                "has a gradient at all"
            )
        hint = "return all of it, updated, and nothing else"
        check_like("model_state of the loss", new, model_state, hint)
        return value, new

    return checked


def _kind(result: object) -> str:
    shape = getattr(result, "shape", None)
    return type(result).__name__ if shape is None else f"an array of shape {shape}"
