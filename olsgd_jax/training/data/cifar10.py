"""CIFAR-10: photographs of 32 x 32 pixels, ten classes.

TensorFlow Datasets stores the images as PNG, in an order of its own. Here they are
decoded once, into arrays on disk, in the order of the original files.

Reference: A. Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009.
"""

import functools
import io
import os
import pathlib
import sys
from typing import Protocol, cast

import jax
import numpy as np
from rich.console import Console
from rich.progress import track

from olsgd_jax._extras import needs_extra
from olsgd_jax.training.data.array_cache import cache_directory, cached_arrays
from olsgd_jax.training.data.dataset import Dataset
from olsgd_jax.training.data.prepared import (
    fingerprint,
    prepared_directory,
    reading_split,
)

VERSION = "3.0.2"
"""Version of the data set in TensorFlow Datasets."""

NUM_EXAMPLES = {"train": 50_000, "test": 10_000}
"""Examples by split."""

CHUNK = 1000
"""Examples that are read at a time; reading them one by one takes 1.7 times as long."""


def cifar10(data_dir: str | os.PathLike | None = None) -> Dataset:
    """Loads CIFAR-10: 50,000 images to learn from, 10,000 to be tested on.

    Inputs are uint8 of shape (32, 32, 3). The arrays are memory-mapped from
    $XDG_CACHE_HOME or ~/.cache, so a process copies only the examples that it indexes.
    The first call takes a few seconds to decode them.

    Args:
      data_dir: a directory of TensorFlow Datasets that contains cifar10/3.0.2; by
        default $TFDS_DATA_DIR, or ~/tensorflow_datasets if that is not set. If the data
        set is not there, TensorFlow Datasets downloads it.

    Raises:
      FileNotFoundError: the data set is missing and cannot be downloaded.
      ValueError: the data set has another version or format, or is incomplete.
    """
    directory = prepared_directory("cifar10", VERSION, data_dir)
    cache = cache_directory(f"cifar10-{VERSION}-{fingerprint(directory)}")
    arrays = {}
    for split, size in NUM_EXAMPLES.items():
        outline = {
            "images": jax.ShapeDtypeStruct((size, 32, 32, 3), np.uint8),
            "labels": jax.ShapeDtypeStruct((size,), np.int32),
        }
        decode = functools.partial(_decode, directory, split)
        arrays[split] = cached_arrays(cache / split, outline, decode).values()
    return Dataset(*arrays["train"], *arrays["test"], num_classes=10)


def cifar10_outline() -> Dataset:
    """Gives a data set with the sizes and class counts of CIFAR-10, without its files.

    All images are black and take no memory. Partitions have the same sizes as with
    CIFAR-10, and models the same shapes.

    >>> from olsgd_jax.training.data.cifar10 import cifar10_outline
    >>> cifar10_outline().train_inputs.shape
    (50000, 32, 32, 3)
    """
    black, arrays = np.zeros((), np.uint8), []
    for size in NUM_EXAMPLES.values():
        labels = np.arange(size, dtype=np.int32) % 10
        arrays += [np.broadcast_to(black, (size, 32, 32, 3)), labels]
    return Dataset(*arrays, num_classes=10)


def _decode(directory: pathlib.Path, split: str) -> dict[str, np.ndarray]:
    with reading_split(directory, split):
        return _decode_images(directory.parents[1], split)


class _Source(Protocol):  # the methods of tfds.data_source that its type leaves out
    def __len__(self) -> int: ...
    def __getitems__(self, indices: range) -> list[dict]: ...


def _decode_images(data_dir: pathlib.Path, split: str) -> dict[str, np.ndarray]:
    """Decodes all images and labels of a split, in the order of the original files."""
    # Imported here because it takes a second, which the cache makes unnecessary.
    with needs_extra("experiments"):
        import tensorflow_datasets as tfds
        from PIL import Image

    name, num_examples = f"cifar10:{VERSION}", NUM_EXAMPLES[split]
    images = np.zeros((num_examples, 32, 32, 3), np.uint8)
    labels = np.full(num_examples, -1, np.int32)
    source = tfds.data_source(
        name,
        split=split,
        data_dir=data_dir,
        download=False,
        # With tfds' own decoding it takes half as long again.
        decoders={"image": tfds.decode.SkipDecoding()},
    )
    source = cast(_Source, source)
    if len(source) != num_examples:
        raise ValueError(f"{len(source)} examples instead of {num_examples}")
    firsts = track(
        range(0, num_examples, CHUNK),
        f"{name}, {split}",
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
    for first in firsts:
        chunk = range(first, min(first + CHUNK, num_examples))
        for example in source.__getitems__(chunk):
            # The id ends with the index in the original files, as in b"train_00042".
            index = int(example["id"].rpartition(b"_")[2])
            images[index] = np.asarray(Image.open(io.BytesIO(example["image"])))
            labels[index] = example["label"]
    if labels.min() < 0:
        raise ValueError(f"{np.sum(labels < 0)} examples are missing")
    return {"images": images, "labels": labels}
