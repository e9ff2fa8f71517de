"""Data sets that TensorFlow Datasets has prepared: finds them, or downloads them."""

import contextlib
import hashlib
import importlib
import os
import pathlib
from collections.abc import Iterator

NEEDED = ("tensorflow", "importlib_resources")
"""Packages that tfds needs to prepare data sets, but not to read them."""


def prepared_directory(
    name: str, version: str, data_dir: str | os.PathLike | None
) -> pathlib.Path:
    """Finds the directory of a data set; downloads it if it is missing.

    Args:
      name: name of the data set in TensorFlow Datasets.
      version: version of the data set there.
      data_dir: a directory of TensorFlow Datasets; by default $TFDS_DATA_DIR, or
        ~/tensorflow_datasets if that is not set.

    Raises:
      FileNotFoundError: the data set is missing and cannot be downloaded.
      ValueError: the data set has another version.
    """
    # The same default as in tfds, which reads it once and takes a second to import.
    root = data_dir or os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets"
    root = pathlib.Path(root).expanduser()
    directory = root / name / version
    if not directory.is_dir():
        others = sorted(x.name for x in directory.parent.glob("[0-9]*.*.*"))
        if others:
            raise ValueError(
                f"data_dir must hold {name} in version {version}, got "
                f"{', '.join(others)} in {directory.parent}; use another directory"
            )
        _download(name, version, root)
    return directory


def fingerprint(directory: pathlib.Path) -> str:
    """Identifies the files of a directory, without reading them."""
    files = [(x.name, x.stat()) for x in sorted(directory.iterdir())]
    lines = [f"{name} {stat.st_size} {stat.st_mtime_ns}" for name, stat in files]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]


@contextlib.contextmanager
def reading_split(directory: pathlib.Path, split: str) -> Iterator[None]:
    """Names a split and its data set in the error if it cannot be read."""
    try:
        yield
    except Exception as error:  # tfds and array_record raise many kinds
        raise ValueError(
            f"data_dir must hold all of {directory.parent.name} as array_record, got "
            f"{directory}, whose {split} split cannot be read ({error}); use another "
            "directory, or delete that one and get it again"
        ) from error


def _download(name: str, version: str, root: pathlib.Path) -> None:
    try:
        for package in NEEDED:
            importlib.import_module(package)
        import tensorflow_datasets as tfds

        tfds.builder(
            f"{name}:{version}", data_dir=root, file_format="array_record"
        ).download_and_prepare()
    except Exception as error:  # tfds has its own errors of network and disk
        raise FileNotFoundError(
            f"data_dir must hold {name}/{version}, got {root}, where it is not and "
            f"cannot be downloaded ({error}); set --data-dir or TFDS_DATA_DIR to a "
            "directory that has it, or run once with a network and with pip install "
            '"olsgd_jax[data]"'
        ) from error
