"""Loss and accuracy of one model on held-out data."""

import functools
from collections.abc import Callable
from typing import Annotated, NamedTuple

import jax
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from olsgd_jax.training.options import between
from olsgd_jax.training.tasks import Task
from olsgd_jax.types import ArrayTree, ModelState, Params

CHUNK = 4096
"""Number of examples evaluated at a time."""


class Evaluation(NamedTuple):
    """Loss and accuracy of a model.

    >>> from olsgd_jax.training import Evaluation
    >>> Evaluation(loss=0.25, accuracy=0.9).accuracy
    0.9
    """

    loss: float  # mean cross-entropy
    # Fraction of labels that got the highest logit.
    accuracy: Annotated[float, between(0, 1, "[]")]


def evaluate(
    task: Task,
    params: Params,
    model_state: ModelState,
    inputs: np.ndarray,
    labels: Int[np.ndarray, " examples"],
) -> Evaluation:
    """Measures the loss and the accuracy of one model.

    Args:
      task: the task; its `predict` must return logits.
      params: parameters without a worker axis, as from `model_of`.
      model_state: model state that belongs to them.
      inputs: examples on the leading axis.
      labels: labels of the same examples.

    >>> import numpy as np
    >>> from olsgd_jax.training import Task, evaluate
    >>> identity = Task(None, None, predict=lambda params, model_state, x: x)
    >>> logits = np.zeros((2, 4), np.float32)
    >>> loss, accuracy = evaluate(identity, (), (), logits, np.array([0, 3]))
    >>> round(loss, 4), accuracy  # ln 4; the first of equal logits wins
    (1.3863, 0.5)
    """
    predict = task.predict
    if predict is None:
        raise ValueError("task must have a predict to be evaluated, got None")
    if len(inputs) != len(labels) or not len(labels):
        raise ValueError(
            "labels must be as many as inputs and at least one, "
            f"got {len(labels)} labels and {len(inputs)} inputs"
        )
    parts = [slice(first, first + CHUNK) for first in range(0, len(labels), CHUNK)]
    sums = [_sums(predict, params, model_state, inputs[i], labels[i]) for i in parts]
    loss, num_correct = np.sum(np.array(sums, np.float64), axis=0)
    return Evaluation(float(loss / len(labels)), float(num_correct / len(labels)))


@functools.partial(jax.jit, static_argnames="predict")
def _sums(
    predict: Callable[[Params, ModelState, ArrayTree], jax.Array],
    params: Params,
    model_state: ModelState,
    inputs: jax.Array,
    labels: Int[Array, " examples"],
) -> tuple[Float[Array, ""], Int[Array, ""]]:
    logits = predict(params, model_state, inputs)
    loss = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    is_correct = logits.argmax(axis=-1).astype(labels.dtype) == labels
    return loss.sum(), is_correct.sum()
