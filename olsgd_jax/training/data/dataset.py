"""The type of a data set."""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Int32, UInt8

from olsgd_jax.types import Shards

NO_LABEL = -1
"""The label of a position that is not counted in an evaluation."""


class Dataset(NamedTuple):
    """Examples to learn from, and examples to be tested on.

    Inputs of dtype uint8 are images: pixels from 0 to 255, with axes (example, height,
    width, channel). They may be memory-mapped.

    A data set with an alphabet is a text. Its inputs are tokens, numbers of characters
    in the alphabet, and the label of each token is the token after it. `load_dataset`
    gives the text as one row of tokens, and `in_windows` cuts it into examples.

    >>> from olsgd_jax.training import load_dataset
    >>> dataset = load_dataset("digits")
    >>> dataset.train_labels.shape, dataset.test_labels.dtype
    ((1440,), dtype('int32'))
    """

    train_inputs: (
        Float32[np.ndarray, "train ..."]
        | UInt8[np.ndarray, "train ..."]
        | Int32[np.ndarray, "train ..."]
    )
    train_labels: Int32[np.ndarray, "train ..."]  # in [0, num_classes)
    test_inputs: (
        Float32[np.ndarray, "test ..."]
        | UInt8[np.ndarray, "test ..."]
        | Int32[np.ndarray, "test ..."]
    )
    test_labels: Int32[np.ndarray, "test ..."]  # as above, or NO_LABEL
    num_classes: int
    alphabet: str | None = None  # the character of each class; None: not a text

    @property
    def kind(self) -> str:
        """What the inputs are: vectors, images or text."""
        if self.alphabet is not None:
            return "text"
        return "images" if self.train_inputs.ndim == 4 else "vectors"

    @property
    def labels_per_example(self) -> int:
        """1, or the length of a window of text."""
        return math.prod(self.train_labels.shape[1:])

    def epoch_size(self, shards: Shards) -> float:
        """Counts the examples of an epoch, of all workers together.

        Windows of a text overlap, so an epoch has as many of them as hold the text
        once.
        """
        return sum(map(len, shards)) / self.labels_per_example


def text_dataset(
    train: Int32[np.ndarray, " train"], test: Int32[np.ndarray, " test"], alphabet: str
) -> Dataset:
    """Makes a data set of two texts, each as one row of tokens.

    >>> dataset = text_dataset(np.int32([0, 1, 0]), np.int32([1, 1]), alphabet="ab")
    >>> dataset.train_inputs, dataset.train_labels
    (array([0, 1], dtype=int32), array([1, 0], dtype=int32))
    """
    return Dataset(train[:-1], train[1:], test[:-1], test[1:], len(alphabet), alphabet)
