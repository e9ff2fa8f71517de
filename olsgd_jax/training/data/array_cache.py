"""Arrays that took long to make, on disk for the next time.

A directory holds one .npy file per array. A file appears under its name only when it
is whole: it is written under another name first, then renamed, in one step. Processes
that make the same arrays at the same time replace each other's files by equal ones,
and whoever has an old file open keeps it.
"""

import os
import pathlib
import tempfile
from collections.abc import Callable, Mapping

import jax
import numpy as np

from olsgd_jax.training.files import writing

HINT = "set XDG_CACHE_HOME to another directory"


def cache_directory(name: str) -> pathlib.Path:
    """Names the library's directory for `name`: below $XDG_CACHE_HOME or ~/.cache."""
    root = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return pathlib.Path(root).expanduser() / "olsgd_jax" / name


def cached_arrays(
    directory: pathlib.Path,
    outline: Mapping[str, jax.ShapeDtypeStruct],
    make: Callable[[], dict[str, np.ndarray]],
) -> dict[str, np.ndarray]:
    """Opens the arrays of a directory, which are made first if they are not there.

    A file that is cut off, is no array or has another shape or dtype counts as not
    there. The numbers in it are not looked at: that would read all of it.

    Args:
      directory: where the arrays are, each as <name>.npy.
      outline: shape and dtype of every array by its name.
      make: gives all arrays by their names.

    Returns:
      Arrays that are read from disk as they are indexed, and cannot be written to.

    >>> import tempfile
    >>> directory = pathlib.Path(tempfile.mkdtemp())
    >>> outline = {"squares": jax.ShapeDtypeStruct((3,), np.int32)}
    >>> make = lambda: {"squares": np.arange(3, dtype=np.int32) ** 2}
    >>> cached_arrays(directory, outline, make)["squares"].tolist()
    [0, 1, 4]
    """
    try:
        return {name: _opened(directory, name, x) for name, x in outline.items()}
    except (OSError, ValueError, EOFError):  # EOFError: an empty file
        pass
    with writing(directory, HINT):
        directory.mkdir(parents=True, exist_ok=True)
    for name, array in make().items():
        with writing(directory / f"{name}.npy", HINT):
            _write(directory, name, array)
    return {name: _opened(directory, name, x) for name, x in outline.items()}


def _opened(
    directory: pathlib.Path, name: str, expected: jax.ShapeDtypeStruct
) -> np.ndarray:
    path = directory / f"{name}.npy"
    array = np.load(path, mmap_mode="r")
    if (array.shape, array.dtype) != (expected.shape, expected.dtype):
        raise ValueError(
            f"{path} must hold {expected.dtype}{list(expected.shape)}, "
            f"got {array.dtype}{list(array.shape)}"
        )
    return array


def _write(directory: pathlib.Path, name: str, array: np.ndarray) -> None:
    # In the same directory: only there is a rename one step. Each process has a name
    # of its own, on all hosts that share the directory.
    with tempfile.NamedTemporaryFile(dir=directory, prefix=name, delete=False) as file:
        try:
            np.save(file, array)
            file.flush()
            os.replace(file.name, directory / f"{name}.npy")
        except BaseException:
            os.unlink(file.name)
            raise
