"""CIFAR-10: photographs of 32 x 32 pixels, ten classes.

TensorFlow Datasets keeps the images as PNG, in an order of its own. Here they are
decoded once, into arrays that stay on disk, in the order of the original files.

Reference: A. Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009.
"""

import functools
import hashlib
import importlib
import os
import pathlib

import jax
import numpy as np

from olsgd_jax.training.data.array_cache import cache_directory, cached_arrays
from olsgd_jax.training.data.dataset import Dataset
from olsgd_jax.training.data.decode import decode_images

VERSION = "3.0.2"
"""Of the data set in TensorFlow Datasets."""

NUM_EXAMPLES = {"train": 50_000, "test": 10_000}
"""Examples by split."""

NEEDED = ("tensorflow", "importlib_resources")
"""Packages without which tfds reads data sets, but does not prepare them."""


def cifar10(data_dir: str | os.PathLike | None = None) -> Dataset:
    """Loads CIFAR-10: 50,000 images to learn from, 10,000 to be tested on.

    Inputs are uint8 of shape (32, 32, 3). The arrays lie in $XDG_CACHE_HOME or
    ~/.cache and are read from there as they are indexed, so that a process has copies
    of those examples only that it asks for. Making them takes some seconds, once.

    Args:
      data_dir: a directory of TensorFlow Datasets, with cifar10/3.0.2 in it; None for
        $TFDS_DATA_DIR, and without that ~/tensorflow_datasets. Where it is not there,
        TensorFlow Datasets downloads it.

    Raises:
      FileNotFoundError: the data set is not there and cannot be downloaded.
      ValueError: it is there in another version, in another format, or not whole.
    """
    # tfds has the same default, but reads it once, and takes a second to import.
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
    """Gives a data set as large as CIFAR-10, with as many examples of each class.

    It needs no files, and its images, all black, take no memory. Partitions have the
    same sizes with it, and models the same shapes.

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
    """Finds the directory of the data set, which is downloaded if it is not there."""
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
    except Exception as error:  # of the network or the disk, in classes of tfds' own
        raise FileNotFoundError(
            f"data_dir must hold cifar10/{VERSION}, got {root}, where it is not and "
            f"cannot be downloaded ({error}); set --data-dir or TFDS_DATA_DIR to a "
            "directory that has it, or run once with a network and with pip install "
            '"olsgd_jax[data]"'
        ) from error


def _fingerprint(directory: pathlib.Path) -> str:
    """Tells the files of a directory from others, without reading them."""
    files = [(x.name, x.stat()) for x in sorted(directory.iterdir())]
    lines = [f"{name} {stat.st_size} {stat.st_mtime_ns}" for name, stat in files]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]


def _decode(directory: pathlib.Path, split: str) -> dict[str, np.ndarray]:
    try:
        return decode_images(
            f"cifar10:{VERSION}", directory.parents[1], split, NUM_EXAMPLES[split]
        )
    except Exception as error:  # tfds and array_record raise many kinds
        raise ValueError(
            f"data_dir must hold all of cifar10 as array_record, got {directory}, "
            f"whose {split} split cannot be read ({error}); use another directory, or "
            "delete that one and get it again"
        ) from error
