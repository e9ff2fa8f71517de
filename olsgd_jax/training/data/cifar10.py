"""CIFAR-10: photographs of 32 x 32 pixels, ten classes.

TensorFlow Datasets stores the images as PNG, in an order of its own. Here they are
decoded once, into arrays on disk, in the order of the original files.

Reference: A. Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009.
"""

import functools
import hashlib
import importlib
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

VERSION = "3.0.2"
"""Version of the data set in TensorFlow Datasets."""

NUM_EXAMPLES = {"train": 50_000, "test": 10_000}
"""Examples by split."""

CHUNK = 1000
"""Examples that are read at a time; reading them one by one takes 1.7 times as long."""

NEEDED = ("tensorflow", "importlib_resources")
"""Packages that tfds needs to prepare data sets, but not to read them."""


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
    # The same default as in tfds, which reads it once and takes a second to import.
    root = data_dir or os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets"
    directory = _prepared(pathlib.Path(root).expanduser())
    cache = cache_directory(f"cifar10-{VERSION}-{_fingerprint(directory)}")
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


def _prepared(root: pathlib.Path) -> pathlib.Path:
    """Finds the directory of the data set; downloads it if it is missing."""
    directory = root / "cifar10" / VERSION
    if not directory.is_dir():
        others = sorted(x.name for x in directory.parent.glob("[0-9]*.*.*"))
        if others:
            raise ValueError(
                f"data_dir must hold cifar10 in version {VERSION}, got "
                f"{', '.join(others)} in {directory.parent}; use another directory"
            )
        _download(root)
    return directory


def _download(root: pathlib.Path) -> None:
    try:
        for package in NEEDED:
            importlib.import_module(package)
        import tensorflow_datasets as tfds

        tfds.builder(
            f"cifar10:{VERSION}", data_dir=root, file_format="array_record"
        ).download_and_prepare()
    except Exception as error:  # tfds has its own errors of network and disk
        raise FileNotFoundError(
            f"data_dir must hold cifar10/{VERSION}, got {root}, where it is not and "
            f"cannot be downloaded ({error}); set --data-dir or TFDS_DATA_DIR to a "
            "directory that has it, or run once with a network and with pip install "
            '"olsgd_jax[data]"'
        ) from error


def _fingerprint(directory: pathlib.Path) -> str:
    """Identifies the files of a directory, without reading them."""
    files = [(x.name, x.stat()) for x in sorted(directory.iterdir())]
    lines = [f"{name} {stat.st_size} {stat.st_mtime_ns}" for name, stat in files]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]


def _decode(directory: pathlib.Path, split: str) -> dict[str, np.ndarray]:
    try:
        return _decode_images(directory.parents[1], split)
    except Exception as error:  # tfds and array_record raise many kinds
        raise ValueError(
            f"data_dir must hold all of cifar10 as array_record, got {directory}, "
            f"whose {split} split cannot be read ({error}); use another directory, or "
            "delete that one and get it again"
        ) from error


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
