"""Adapts losses that have neither model state nor randomness."""

from collections.abc import Callable

from jaxtyping import Array, Float, Key

from olsgd_jax.types import Batch, Loss, ModelState, Params


def plain_loss(loss: Callable[[Params, Batch], Float[Array, ""]]) -> Loss:
    """Makes a `Loss` out of a function of params and batch alone.

    >>> import jax, jax.numpy as jnp
    >>> from olsgd_jax import plain_loss
    >>> loss = plain_loss(lambda params, batch: jnp.sum(params * batch))
    >>> value, _ = loss(jnp.ones(3), {}, jnp.arange(3.0), jax.random.key(0))
    >>> value.item()
    3.0
    """

    def full_loss(
        params: Params, model_state: ModelState, batch: Batch, key: Key[Array, ""]
    ) -> tuple[Float[Array, ""], ModelState]:
        del key
        return loss(params, batch), model_state

    return full_loss
