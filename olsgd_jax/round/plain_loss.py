"""Losses without model state or randomness, as the library takes them."""

from collections.abc import Callable

from jaxtyping import Array, Float, Key

from olsgd_jax.types import Batch, Loss, ModelState, Params


def plain_loss(loss: Callable[[Params, Batch], Float[Array, ""]]) -> Loss:
    """Makes a `Loss` of one that has neither model state nor randomness.

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
