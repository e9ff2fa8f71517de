"""Tasks: the first model and the loss, as pure functions made from Flax modules."""

from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Key

from olsgd_jax.types import ArrayTree, Batch, Loss, ModelState, Params


class Task(NamedTuple):
    """What is learned, as pure functions.

    >>> import jax, jax.numpy as jnp
    >>> from olsgd_jax import plain_loss
    >>> from olsgd_jax.training import Task
    >>> def loss(params, batch):
    ...     return jnp.sum((params - batch) ** 2)
    >>> task = Task(lambda key: (jnp.zeros(3), {}), plain_loss(loss))
    >>> params, model_state = task.init(jax.random.key(0))
    >>> value, _ = task.loss(params, model_state, jnp.ones(3), jax.random.key(1))
    >>> value.item()
    3.0
    """

    init: Callable[[Key[Array, ""]], tuple[Params, ModelState]]
    loss: Loss
    # params, model_state, inputs -> outputs, for evaluation; None without outputs.
    predict: Callable[[Params, ModelState, ArrayTree], jax.Array] | None = None


def classification(
    module: nn.Module,
    inputs: jax.ShapeDtypeStruct,
    augment: Callable[[Key[Array, ""], jax.Array], jax.Array] | None = None,
    prepare: Callable[[jax.Array], jax.Array] | None = None,
) -> Task:
    """Makes a task from a Flax module that maps inputs to one logit per class.

    Batches are dicts with `inputs` and integer `labels`, one for each vector of logits:
    for each example, or for each position in a window of text. The loss is their mean.
    The module must accept the argument `train`. It may use dropout (rng `dropout`) and
    have variables other than `params`, which become the model state.

    Args:
      module: a linen module.
      inputs: shape and dtype of one batch of inputs.
      augment: key, inputs -> inputs; applied only in training.
      prepare: inputs -> inputs of the module, such as `normalise`; applied after
        `augment` in training, and in testing.

    >>> import jax, jax.numpy as jnp
    >>> from olsgd_jax.training import MLP, classification
    >>> task = classification(MLP(8, num_classes=3), jax.ShapeDtypeStruct((1, 4), "f4"))
    >>> params, model_state = task.init(jax.random.key(0))
    >>> task.predict(params, model_state, jnp.zeros((5, 4))).shape
    (5, 3)
    """

    def prepared(x: jax.Array) -> jax.Array:
        return x if prepare is None else prepare(x)

    def init(key: Key[Array, ""]) -> tuple[Params, ModelState]:
        empty = prepared(jnp.zeros(inputs.shape, inputs.dtype))
        variables = dict(module.init(key, empty, train=False))
        return variables.pop("params"), variables

    def loss(
        params: Params, model_state: ModelState, batch: Batch, key: Key[Array, ""]
    ):
        augment_key, dropout_key = jax.random.split(key)
        x = batch["inputs"]
        logits, model_state = module.apply(
            {"params": params, **model_state},
            prepared(x if augment is None else augment(augment_key, x)),
            train=True,
            rngs={"dropout": dropout_key},
            mutable=list(model_state),
        )
        losses = optax.softmax_cross_entropy_with_integer_labels(
            logits, batch["labels"]
        )
        return losses.mean(), dict(model_state)

    def predict(params: Params, model_state: ModelState, x: ArrayTree) -> jax.Array:
        variables = {"params": params, **model_state}
        return jnp.asarray(module.apply(variables, prepared(x), train=False))

    return Task(init, loss, predict)
