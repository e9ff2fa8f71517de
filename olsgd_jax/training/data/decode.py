"""Images that TensorFlow Datasets keeps as PNG, in an order of its own, as arrays."""

import io
import os
import sys
from collections.abc import Iterable
from typing import Protocol, cast

import numpy as np
from rich.console import Console
from rich.progress import track

from olsgd_jax._extras import needs_extra

CHUNK = 1000
"""Examples that are read at a time: one at a time takes 1.7 times as long."""


class _Source(Protocol):  # what tfds.data_source gives, which it declares otherwise
    def __len__(self) -> int: ...
    def __getitems__(self, places: range) -> list[dict]: ...


def decode_images(
    name: str, data_dir: str | os.PathLike, split: str, num_examples: int
) -> dict[str, np.ndarray]:
    """Decodes all images of a split, each 32 x 32 pixels of three colours.

    Args:
      name: name of the data set and its version, as in "cifar10:3.0.2".
      data_dir: where it lies, as array_record.
      split: "train" or "test".
      num_examples: how many there must be.

    Returns:
      `images` and `labels`, in the order of the original files: the number at the end
      of an example's id is its place there.
    """
    # Imported here: it takes a second, which arrays from the cache need not wait for.
    with needs_extra("experiments"):
        import tensorflow_datasets as tfds
        from PIL import Image

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
    for first in _progress(range(0, num_examples, CHUNK), f"{name}, {split}"):
        chunk = range(first, min(first + CHUNK, num_examples))
        for example in source.__getitems__(chunk):
            place = int(example["id"].rpartition(b"_")[2])  # of b"train_00042"
            images[place] = np.asarray(Image.open(io.BytesIO(example["image"])))
            labels[place] = example["label"]
    if labels.min() < 0:
        raise ValueError(f"{np.sum(labels < 0)} examples are missing")
    return {"images": images, "labels": labels}


def _progress(numbers: range, description: str) -> Iterable[int]:
    """Shows how far a loop is, if somebody looks."""
    return track(
        numbers,
        description,
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
