"""Seals: checksums of all files of a checkpoint, in a file beside them.

Whatever reads a file need not be ready for one that was cut off or changed: it is not
asked to read it.
"""

import json
import pathlib
import shutil
import warnings
import zlib

import jax
import numpy as np
from jax.experimental import multihost_utils

SEAL = "checksums.json"
_UNSEALED = (SEAL, "_CHECKPOINT_METADATA")  # orbax still writes it, and nobody reads it
_BLOCK = 2**20  # bytes that are read at once
_LONGEST = 500  # letters of what is said of damage


class DamagedError(Exception):
    """Files are not as they were written."""


def seal(directory: pathlib.Path) -> None:
    """Writes the checksums of all files of a directory.

    >>> import pathlib, tempfile
    >>> directory = pathlib.Path(tempfile.mkdtemp())
    >>> (directory / "tree").mkdir()
    >>> _ = (directory / "tree" / "numbers").write_text("1 2 3")
    >>> seal(directory)
    >>> check_seal(directory)
    >>> _ = (directory / "tree" / "numbers").write_text("1 2 4")
    >>> check_seal(directory)
    Traceback (most recent call last):
    olsgd_jax.training.checkpoints.integrity.DamagedError: tree/numbers was changed
    """
    files = [path for path in sorted(directory.rglob("*")) if path.is_file()]
    names = [path.relative_to(directory).as_posix() for path in files]
    sums = {
        name: _checksum(path)
        for name, path in zip(names, files, strict=True)
        if name not in _UNSEALED
    }
    (directory / SEAL).write_text(json.dumps(sums, indent=1), encoding="utf-8")


def seal_unnamed(directory: pathlib.Path, more: dict[str, str]) -> None:
    """Seals a checkpoint, with some more files; the first process does."""
    if jax.process_index() > 0:
        return
    for name, text in more.items():
        (directory / name).write_text(text, encoding="utf-8")
    seal(directory)


def check_seal(directory: pathlib.Path) -> None:
    """Raises unless all files are there, and as they were when they were sealed."""
    try:
        sums = json.loads((directory / SEAL).read_text(encoding="utf-8"))
        expected = dict(sums)
    except (OSError, ValueError, TypeError) as error:
        raise DamagedError(f"{SEAL} cannot be read") from error
    for name, checksum in expected.items():
        path = directory / name
        if not path.resolve().is_relative_to(directory.resolve()):
            raise DamagedError(f"{name} is outside of it")
        if not path.is_file():
            raise DamagedError(f"{name} is missing")
        if _checksum(path) != checksum:
            raise DamagedError(f"{name} was changed")


def check_seal_for_all(directory: pathlib.Path) -> None:
    """Checks a seal in the first process, and raises in all of them."""
    damage = ""
    if jax.process_index() == 0:
        try:
            check_seal(directory)
        except DamagedError as error:
            damage = str(error)
    if jax.process_count() > 1:
        letters = list(damage.encode()[:_LONGEST])
        text = np.zeros(_LONGEST, np.int32)
        text[: len(letters)] = letters
        text = multihost_utils.broadcast_one_to_all(text)
        damage = bytes(text.tolist()).rstrip(b"\0").decode(errors="replace")
    if damage:
        raise DamagedError(damage)


def set_aside(directory: pathlib.Path, damage: DamagedError) -> None:
    """Gives a damaged checkpoint another name, and says so, in all processes."""
    aside = directory.with_name(f"{directory.name}.damaged")
    warnings.warn(
        f"checkpoint {directory} is damaged: {damage}; it is now {aside.name}, and the "
        "one before it is used",
        stacklevel=3,
    )
    if jax.process_index() == 0:
        shutil.rmtree(aside, ignore_errors=True)  # of an earlier time
        directory.rename(aside)
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices("a damaged checkpoint is set aside")


def _checksum(path: pathlib.Path) -> str:
    """Gives length and CRC-32: damage is not malice, and rounds wait for the core."""
    checksum, length = 0, 0
    with path.open("rb", buffering=0) as file:
        while block := file.read(_BLOCK):
            checksum, length = zlib.crc32(block, checksum), length + len(block)
    return f"{length} {checksum:08x}"
