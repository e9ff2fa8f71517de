"""Checksums of all files of a checkpoint, and the version of its format.

orbax does not notice all damage, so truncated and changed files are found before it
reads them.
"""

import errno
import json
import math
import os
import pathlib
import shutil
import warnings
import zlib

import jax
import numpy as np
from jax.experimental import multihost_utils

from olsgd_jax.types import ArrayTree

FORMAT = 2
"""Version of the format of checkpoints; version 1 did not store it."""
CHECKSUMS = "checksums.json"
SPARE = 2**20
"""Bytes of free space that a checkpoint needs in addition to its arrays."""
_UNLISTED = (CHECKSUMS, "_CHECKPOINT_METADATA")  # orbax writes the second one again
_UNREADABLE = (OSError, ValueError, TypeError, RecursionError)  # as a JSON object
_BLOCK = 2**20  # bytes that are read at once
_LONGEST = 500  # bytes of a description of damage


class DamagedError(Exception):
    """Files of a checkpoint are not as they were written."""


def write_checksums(directory: pathlib.Path) -> None:
    """Writes the checksums of all files of a checkpoint.

    >>> import pathlib, tempfile
    >>> directory = pathlib.Path(tempfile.mkdtemp())
    >>> (directory / "tree").mkdir()
    >>> _ = (directory / "tree" / "numbers").write_text("1 2 3")
    >>> write_checksums(directory)
    >>> check_files(directory)
    >>> _ = (directory / "tree" / "numbers").write_text("1 2 4")
    >>> check_files(directory)
    Traceback (most recent call last):
    olsgd_jax.training.checkpoints.integrity.DamagedError: tree/numbers was changed
    """
    files = [path for path in sorted(directory.rglob("*")) if path.is_file()]
    names = [path.relative_to(directory).as_posix() for path in files]
    sums = {
        name: _checksum(path)
        for name, path in zip(names, files, strict=True)
        if name not in _UNLISTED
    }
    text = json.dumps({"format": FORMAT, "files": sums}, indent=1)
    (directory / CHECKSUMS).write_text(text, encoding="utf-8")


def check_files(directory: pathlib.Path) -> None:
    """Raises unless all files of a checkpoint are there, as they were written.

    Raises:
      DamagedError: if they are not.
      ValueError: if the checkpoint has another format.
    """
    try:
        found = _read_json(directory / CHECKSUMS)
    except _UNREADABLE as error:
        raise DamagedError(f"{CHECKSUMS} cannot be read") from error
    if found and (version := found.get("format", 1)) != FORMAT:
        raise ValueError(
            f"checkpoint {directory} has format {version}, but this version of the "
            f"library reads format {FORMAT}; resume with the version that wrote it"
        )
    sums = found.get("files")
    if not isinstance(sums, dict) or not sums:
        raise DamagedError(f"{CHECKSUMS} lists no files")
    for name, checksum in sums.items():
        try:
            _check_file(directory, name, checksum)
        except (OSError, ValueError, RuntimeError) as error:  # a loop of links is one
            raise DamagedError(f"{name} cannot be read") from error


def check_files_for_all(directory: pathlib.Path) -> None:
    """Checks a checkpoint in the first process, and raises alike in all of them."""
    damage, refusal = "", ""
    if jax.process_index() == 0:
        try:
            check_files(directory)
        except DamagedError as error:
            damage = str(error)
        except ValueError as error:
            refusal = str(error)
    if jax.process_count() > 1:
        damage, refusal = _broadcast(damage), _broadcast(refusal)
    if damage:
        raise DamagedError(damage)
    if refusal:
        raise ValueError(refusal)


def check_space(directory: pathlib.Path, tree: ArrayTree) -> None:
    """Raises an OSError, in all processes, if a tree does not fit on the disk.

    On a disk that fills up, orbax prints a trace for every array that it cannot write.
    """
    directory.mkdir(parents=True, exist_ok=True)
    total, _, free = shutil.disk_usage(directory)
    missing = sum(x.nbytes for x in jax.tree.leaves(tree)) + SPARE - free
    missing = multihost_utils.broadcast_one_to_all(np.float32(missing))
    if total and missing > 0:  # a total of 0: the drive does not say
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def set_aside(checkpoint: pathlib.Path, damage: DamagedError) -> None:
    """Warns of a damaged checkpoint in all processes, and renames it."""
    _set_aside(checkpoint, str(damage))
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices("a damaged checkpoint is set aside")


def set_unreadable_aside(directory: pathlib.Path) -> None:
    """Sets aside entries that are named like checkpoints but that orbax cannot list.

    Only the first process does so, before all of them list the directory.
    """
    if jax.process_index() > 0 or not directory.is_dir():
        return
    for path in directory.iterdir():
        if path.name.isdecimal() and (problem := _why_unlistable(path)):
            _set_aside(path, problem)


def _why_unlistable(checkpoint: pathlib.Path) -> str:
    if checkpoint.name != (name := str(int(checkpoint.name))):
        return f"its name must be {name}"
    if not checkpoint.is_dir():
        return "it is not a directory"
    metrics = checkpoint / "metrics" / "metrics"
    try:
        if not metrics.exists() or not math.isnan(_read_json(metrics).get("score", 0)):
            return ""
    except _UNREADABLE:
        pass
    return "metrics/metrics cannot be read"


def _read_json(path: pathlib.Path) -> dict:
    if not path.is_file():  # reading a pipe would block
        raise FileNotFoundError(path)
    return dict(json.loads(path.read_bytes()))


def _check_file(directory: pathlib.Path, name: str, checksum: str) -> None:
    path = directory / name
    if not path.resolve().is_relative_to(directory.resolve()):
        raise DamagedError(f"{name} is outside of it")
    if not path.is_file():
        raise DamagedError(f"{name} is missing")
    if _checksum(path) != checksum:
        raise DamagedError(f"{name} was changed")


def _checksum(path: pathlib.Path) -> str:
    """Gives length and CRC-32, which is fast and finds damage, though not tampering."""
    checksum, length = 0, 0
    with path.open("rb", buffering=0) as file:
        while block := file.read(_BLOCK):
            checksum, length = zlib.crc32(block, checksum), length + len(block)
    return f"{length} {checksum:08x}"


def _broadcast(text: str) -> str:
    """Gives the first process's text to all."""
    letters = text.encode(errors="replace")[:_LONGEST].ljust(_LONGEST, b"\0")
    padded = np.frombuffer(letters, np.uint8).astype(np.int32)
    padded = multihost_utils.broadcast_one_to_all(padded)
    return bytes(padded.tolist()).rstrip(b"\0").decode(errors="replace")


def _set_aside(checkpoint: pathlib.Path, problem: str) -> None:
    aside = checkpoint.with_name(f"{checkpoint.name}.damaged")
    warnings.warn(
        f"checkpoint {checkpoint} is damaged: {problem}; it is now {aside.name}, and "
        "the one before it is used",
        stacklevel=4,
    )
    if jax.process_index() > 0:
        return
    if aside.is_dir() and not aside.is_symlink():  # from an earlier time
        shutil.rmtree(aside)
    else:
        aside.unlink(missing_ok=True)
    checkpoint.rename(aside)
