"""How good one model is on held-out data."""

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
"""Examples that are evaluated at a time."""


class Evaluation(NamedTuple):
    """How good a model is on some examples.

    >>> from olsgd_jax.training import Evaluation
    >>> Evaluation(loss=0.25, accuracy=0.9).accuracy
    0.9
    """

    loss: float  # mean cross-entropy
    accuracy: Annotated[
        float, between(0, 1, "[]")
    ]  # fraction of labels that got the highest logit


def evaluate(
    task: Task,
    params: Params,
    model_state: ModelState,
    inputs: np.ndarray,
    labels: Int[np.ndarray, " examples"],
) -> Evaluation:
    """Measures the loss and the accuracy of one model.

    Args:
      task: what was learned; it has to predict logits.
      params: without a worker axis, as `model_of` gives them.
      model_state: goes with the params.
      inputs: examples on the leading axis; evaluated `CHUNK` at a time.
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
