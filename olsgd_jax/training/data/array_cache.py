"""A cache on disk for arrays that are slow to make.

A directory holds one .npy file per array. A file is written under a temporary name and
then renamed in one step, so it is always complete. Processes that make the same arrays
at the same time replace each other's files by equal ones, and a process that has
already opened an old file can still read it.
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
    """Gives the library's directory for `name`, in $XDG_CACHE_HOME or ~/.cache."""
    root = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return pathlib.Path(root).expanduser() / "olsgd_jax" / name


def cached_arrays(
    directory: pathlib.Path,
    outline: Mapping[str, jax.ShapeDtypeStruct],
    make: Callable[[], dict[str, np.ndarray]],
) -> dict[str, np.ndarray]:
    """Opens the arrays in a directory, and makes them first if they are missing.

    A file that is cut off, is not an array or has another shape or dtype counts as
    missing. Its contents are not checked, since that would read all of it.

    Args:
      directory: where the arrays are, each as <name>.npy.
      outline: shape and dtype of every array by name.
      make: returns all arrays by name.

    Returns:
      Memory-mapped arrays, which cannot be written to.

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
    # A rename is one step only within a directory. The temporary name is unique among
    # the processes of all hosts that share the directory.
    with tempfile.NamedTemporaryFile(dir=directory, prefix=name, delete=False) as file:
        try:
            np.save(file, array)
            file.flush()
            os.replace(file.name, directory / f"{name}.npy")
        except BaseException:
            os.unlink(file.name)
            raise
