"""Tiny Shakespeare: 1,115,394 characters of plays, 65 different ones.

Models are tested on the last tenth of the text, which TensorFlow Datasets splits into
validation and test.

Reference: A. Karpathy, "The Unreasonable Effectiveness of Recurrent Neural Networks",
2015.
"""

import functools
import os
import pathlib
import string
from collections.abc import Sequence
from typing import cast

import jax
import numpy as np
from jaxtyping import Int32

from olsgd_jax._extras import needs_extra
from olsgd_jax.training.data.array_cache import cache_directory, cached_arrays
from olsgd_jax.training.data.dataset import Dataset, text_dataset
from olsgd_jax.training.data.prepared import (
    fingerprint,
    prepared_directory,
    reading_split,
)

NAME, VERSION = "tiny_shakespeare", "1.0.0"
"""Name and version of the data set in TensorFlow Datasets."""

SPLITS = {"train": ("train",), "test": ("validation", "test")}
"""The parts of the text, in its order, that are learned from and tested on."""

NUM_TOKENS = {"train": 1_003_854, "test": 111_540}
"""Characters that are learned from and tested on."""

ALPHABET = "\n !$&',-.3:;?" + string.ascii_uppercase + string.ascii_lowercase
"""All characters of the text; a token is a position in it."""


def tiny_shakespeare(data_dir: str | os.PathLike | None = None) -> Dataset:
    """Loads Tiny Shakespeare as one row of tokens to learn from, and one to test on.

    Args:
      data_dir: a directory of TensorFlow Datasets that contains tiny_shakespeare/1.0.0;
        by default $TFDS_DATA_DIR, or ~/tensorflow_datasets if that is not set. If the
        data set is not there, TensorFlow Datasets downloads it.

    Raises:
      FileNotFoundError: the data set is missing and cannot be downloaded.
      ValueError: the data set has another version or format, or is incomplete.
    """
    directory = prepared_directory(NAME, VERSION, data_dir)
    cache = cache_directory(f"{NAME}-{VERSION}-{fingerprint(directory)}")
    outline = {
        name: jax.ShapeDtypeStruct((size,), np.int32)
        for name, size in NUM_TOKENS.items()
    }
    tokens = cached_arrays(cache, outline, functools.partial(_read, directory))
    return text_dataset(**tokens, alphabet=ALPHABET)


def tiny_shakespeare_outline() -> Dataset:
    """Gives a text of the same length and characters, without reading its files.

    >>> tiny_shakespeare_outline().train_inputs.shape
    (1003853,)
    """
    tokens = {
        name: np.arange(size, dtype=np.int32) % len(ALPHABET)
        for name, size in NUM_TOKENS.items()
    }
    return text_dataset(**tokens, alphabet=ALPHABET)


def _read(directory: pathlib.Path) -> dict[str, Int32[np.ndarray, " tokens"]]:
    tokens = {}
    for name, splits in SPLITS.items():
        tokens[name] = np.concatenate([_read_split(directory, x) for x in splits])
        if len(tokens[name]) != NUM_TOKENS[name]:
            raise ValueError(
                f"data_dir must hold {NUM_TOKENS[name]:,} characters of {NAME} in "
                f"{' and '.join(splits)}, got {len(tokens[name]):,} in {directory}; "
                "delete that directory and get it again"
            )
    return tokens


def _read_split(directory: pathlib.Path, split: str) -> Int32[np.ndarray, " tokens"]:
    # Imported here because it takes a second, which the cache makes unnecessary.
    with needs_extra("experiments"):
        import tensorflow_datasets as tfds

    with reading_split(directory, split):
        source = tfds.data_source(
            f"{NAME}:{VERSION}",
            split=split,
            data_dir=directory.parents[1],
            download=False,
        )
        text: bytes = cast(Sequence[dict], source)[0]["text"]
        return np.array([ALPHABET.index(x) for x in text.decode()], np.int32)
