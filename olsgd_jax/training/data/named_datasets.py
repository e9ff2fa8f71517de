"""Data sets by name."""

import os
from collections.abc import Callable
from importlib.metadata import version
from typing import NamedTuple

import jax
import numpy as np

from olsgd_jax._checks import check_choice
from olsgd_jax._extras import needs_extra
from olsgd_jax.training.data.array_cache import cache_directory, cached_arrays
from olsgd_jax.training.data.cifar10 import cifar10, cifar10_outline
from olsgd_jax.training.data.dataset import Dataset
from olsgd_jax.training.data.tiny_shakespeare import (
    tiny_shakespeare,
    tiny_shakespeare_outline,
)


def digits(data_dir: str | os.PathLike | None = None) -> Dataset:
    """Loads the handwritten digits that come with scikit-learn.

    1,797 images of 8 x 8 pixels as 64 inputs in [0, 1]: 1,440 to learn from, which many
    numbers of workers divide, and 357 to be tested on. The split is fixed and
    stratified by class. They are kept in $XDG_CACHE_HOME or ~/.cache.

    >>> from olsgd_jax.training.data.named_datasets import digits
    >>> dataset = digits()
    >>> dataset.train_inputs.shape, dataset.test_inputs.shape
    ((1440, 64), (357, 64))
    """
    del data_dir
    with needs_extra("experiments"):
        cache = cache_directory(f"digits-{version('scikit-learn')}")
    outline = {
        f"{split}_{what}": jax.ShapeDtypeStruct((size, *shape), dtype)
        for split, size in (("train", 1440), ("test", 357))
        for what, shape, dtype in (
            ("inputs", (64,), "float32"),
            ("labels", (), "int32"),
        )
    }
    try:
        arrays = cached_arrays(cache, outline, _split_digits)
    except OSError:  # there is no place to keep them
        arrays = _split_digits()
    return Dataset(**arrays, num_classes=10, alphabet=None)


def _split_digits() -> dict[str, np.ndarray]:
    # It takes a second to import, which later runs need not wait for.
    with needs_extra("experiments"):
        from sklearn.datasets import load_digits
        from sklearn.model_selection import train_test_split

    pixels, labels = load_digits(return_X_y=True)
    inputs = np.asarray(pixels, np.float32) / 16
    labels = np.asarray(labels, np.int32)
    train, test = train_test_split(
        np.arange(len(labels)), test_size=357, stratify=labels, random_state=0
    )
    return {
        "train_inputs": inputs[train],
        "train_labels": labels[train],
        "test_inputs": inputs[test],
        "test_labels": labels[test],
    }


def _digits_outline() -> Dataset:
    return Dataset(**_split_digits(), num_classes=10, alphabet=None)


class Source(NamedTuple):
    """Where a data set comes from."""

    load: Callable[[str | os.PathLike | None], Dataset]  # data_dir -> data set
    outline: Callable[[], Dataset]  # a data set of the same sizes, without files


# The digits come with a package and need no files of their own.
DATASETS = {
    "digits": Source(digits, _digits_outline),
    "cifar10": Source(cifar10, cifar10_outline),
    "tiny_shakespeare": Source(tiny_shakespeare, tiny_shakespeare_outline),
}
"""Every data set by its name."""


def load_dataset(name: str, data_dir: str | os.PathLike | None = None) -> Dataset:
    """Loads a data set by its name in `DATASETS`.

    Args:
      name: "digits", which needs no files, "cifar10" or "tiny_shakespeare".
      data_dir: directory of data sets; by default $TFDS_DATA_DIR, or
        ~/tensorflow_datasets if that is not set.

    >>> from olsgd_jax.training import load_dataset
    >>> load_dataset("digits").num_classes
    10
    """
    check_choice("dataset", name, tuple(DATASETS))
    return DATASETS[name].load(data_dir)


def outline_dataset(name: str) -> Dataset:
    """Gives a data set with the sizes of the named one, without reading its files.

    >>> from olsgd_jax.training import outline_dataset
    >>> outline_dataset("cifar10").test_labels.shape
    (10000,)
    """
    check_choice("dataset", name, tuple(DATASETS))
    return DATASETS[name].outline()
