"""Seals: checksums of all files of a checkpoint, in a file beside them.

Whatever reads a file need not be ready for one that was cut off or changed: it is not
asked to read it.
"""

import hashlib
import json
import pathlib
import shutil
import warnings

import jax
import numpy as np
from jax.experimental import multihost_utils

SEAL = "checksums.json"
_LONGEST = 500  # letters of what is said of damage


class DamagedError(Exception):
    """Files are not as they were written."""


def seal(directory: pathlib.Path) -> None:
    """Writes the checksums of all files below the directories of a directory.

    >>> import pathlib, tempfile
    >>> directory = pathlib.Path(tempfile.mkdtemp())
    >>> (directory / "tree").mkdir()
    >>> _ = (directory / "tree" / "numbers").write_text("1 2 3")
    >>> seal(directory)
    >>> check_seal(directory)
    >>> _ = (directory / "tree" / "numbers").write_text("1 2 4")
    >>> check_seal(directory)
    Traceback (most recent call last):
    olsgd_jax.checkpoints.seal.DamagedError: tree/numbers was changed
    """
    files = (path for path in sorted(directory.glob("*/**/*")) if path.is_file())
    sums = {path.relative_to(directory).as_posix(): _checksum(path) for path in files}
    (directory / SEAL).write_text(json.dumps(sums, indent=1), encoding="utf-8")


def seal_unnamed(directory: pathlib.Path, number: int) -> None:
    """Seals a checkpoint that has not got its name yet; the first process does."""
    if jax.process_index() > 0:
        return
    names = directory.glob(f"{number}.*")
    [written] = [path for path in names if path.suffix != ".damaged"]
    seal(written)


def check_seal(directory: pathlib.Path) -> None:
    """Raises unless all files are there, and as they were when they were sealed."""
    try:
        sums = json.loads((directory / SEAL).read_text(encoding="utf-8"))
        expected = dict(sums)
    except (OSError, ValueError, TypeError) as error:
        raise DamagedError(f"{SEAL} cannot be read") from error
    for name, checksum in expected.items():
        path = directory / name
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
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
