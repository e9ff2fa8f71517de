"""Named data sets as arrays in memory."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Int32

from olsgd_jax.checks import check_choice


class Dataset(NamedTuple):
    """Examples to learn from, and examples to be tested on.

    >>> from olsgd_jax import load_dataset
    >>> dataset = load_dataset("digits")
    >>> dataset.train_labels.shape, dataset.test_labels.dtype
    ((1440,), dtype('int32'))
    """

    train_inputs: Float32[np.ndarray, "train ..."]
    train_labels: Int32[np.ndarray, " train"]  # in [0, num_classes)
    test_inputs: Float32[np.ndarray, "test ..."]
    test_labels: Int32[np.ndarray, " test"]
    num_classes: int


def digits() -> Dataset:
    """Loads the handwritten digits that come with scikit-learn.

    1,797 images of 8 x 8 pixels as 64 inputs in [0, 1]: 1,440 to learn from, a number
    that most numbers of workers divide, and 357 to be tested on. The split is always
    the same, with every class in proportion.

    >>> from olsgd_jax.data.datasets import digits
    >>> dataset = digits()
    >>> dataset.train_inputs.shape, dataset.test_inputs.shape
    ((1440, 64), (357, 64))
    """
    # Imported here: it takes a second, which other data sets need not wait for.
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    pixels, labels = load_digits(return_X_y=True)
    inputs = np.asarray(pixels, np.float32) / 16
    labels = np.asarray(labels, np.int32)
    train, test = train_test_split(
        np.arange(len(labels)), test_size=357, stratify=labels, random_state=0
    )
    return Dataset(inputs[train], labels[train], inputs[test], labels[test], 10)


DATASETS: dict[str, Callable[[], Dataset]] = {"digits": digits}
"""Loader of every data set by its name."""


def load_dataset(name: str) -> Dataset:
    """Loads a data set by its name in `DATASETS`.

    >>> from olsgd_jax import load_dataset
    >>> load_dataset("digits").num_classes
    10
    """
    check_choice("dataset", name, tuple(DATASETS))
    return DATASETS[name]()
