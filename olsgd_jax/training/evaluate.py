"""Loss and accuracy of one model on held-out data.

Both are means over labels: one per example, or one per token of a text.
"""

import functools
import math
from collections.abc import Callable
from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from olsgd_jax.training.data.dataset import NO_LABEL
from olsgd_jax.training.options import between
from olsgd_jax.training.tasks import Task
from olsgd_jax.types import ArrayTree, ModelState, Params

CHUNK = 4096
"""Number of labels evaluated at a time."""


class Evaluation(NamedTuple):
    """Loss and accuracy of a model.

    >>> from olsgd_jax.training import Evaluation
    >>> Evaluation(loss=0.25, accuracy=0.9).accuracy
    0.9
    """

    loss: float  # mean cross-entropy, in nats
    # Fraction of labels that got the highest logit.
    accuracy: Annotated[float, between(0, 1, "[]")]

    @property
    def perplexity(self) -> float:
        """exp(loss): as many equally likely labels are as hard to predict."""
        return math.exp(self.loss) if self.loss < 709 else math.inf


def evaluate(
    task: Task,
    params: Params,
    model_state: ModelState,
    inputs: np.ndarray,
    labels: Int[np.ndarray, "examples ..."],
) -> Evaluation:
    """Measures the loss and the accuracy of one model.

    Every label counts the same, except `NO_LABEL`, which does not count.

    Args:
      task: the task; its `predict` must return logits.
      params: parameters without a worker axis, as from `model_of`.
      model_state: model state that belongs to them.
      inputs: examples on the leading axis.
      labels: labels of the same examples: one for each, or one for each position.

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
    size = max(1, CHUNK * len(labels) // labels.size)  # of a part, in examples
    parts = [slice(first, first + size) for first in range(0, len(labels), size)]
    sums = [_sums(predict, params, model_state, inputs[i], labels[i]) for i in parts]
    loss, num_correct = np.sum(np.array(sums, np.float64), axis=0)
    num_labels = np.sum(labels != NO_LABEL)
    return Evaluation(float(loss / num_labels), float(num_correct / num_labels))


@functools.partial(jax.jit, static_argnames="predict")
def _sums(
    predict: Callable[[Params, ModelState, ArrayTree], jax.Array],
    params: Params,
    model_state: ModelState,
    inputs: jax.Array,
    labels: Int[Array, "examples ..."],
) -> tuple[Float[Array, ""], Int[Array, ""]]:
    logits = predict(params, model_state, inputs)
    loss = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    is_correct = logits.argmax(axis=-1).astype(labels.dtype) == labels
    # NO_LABEL is no class, so it is never correct.
    return jnp.where(labels == NO_LABEL, 0, loss).sum(), is_correct.sum()
