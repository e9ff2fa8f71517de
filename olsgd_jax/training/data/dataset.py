"""The type of a data set."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Int32, UInt8


class Dataset(NamedTuple):
    """Examples to learn from, and examples to be tested on.

    Inputs of dtype uint8 are images: pixels from 0 to 255, with axes (example, height,
    width, channel). They may be memory-mapped.

    >>> from olsgd_jax.training import load_dataset
    >>> dataset = load_dataset("digits")
    >>> dataset.train_labels.shape, dataset.test_labels.dtype
    ((1440,), dtype('int32'))
    """

    train_inputs: Float32[np.ndarray, "train ..."] | UInt8[np.ndarray, "train ..."]
    train_labels: Int32[np.ndarray, " train"]  # in [0, num_classes)
    test_inputs: Float32[np.ndarray, "test ..."] | UInt8[np.ndarray, "test ..."]
    test_labels: Int32[np.ndarray, " test"]
    num_classes: int
