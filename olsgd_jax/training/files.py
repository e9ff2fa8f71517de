"""Errors that say which file cannot be written, and why."""

import contextlib
import os
import re
from collections.abc import Iterator


@contextlib.contextmanager
def writing(what: object, hint: str = "") -> Iterator[None]:
    """Makes errors of the system say what cannot be written.

    Args:
      what: what is written, such as the path of a file. The system does not name it if
        the disk is full.
      hint: what to do about it.

    >>> from olsgd_jax.training import writing
    >>> with writing("run.jsonl"):
    ...     raise OSError(28, "No space left on device")
    Traceback (most recent call last):
    OSError: run.jsonl cannot be written: No space left on device
    """
    try:
        yield
    except (OSError, ValueError) as error:
        reason = _reason(error)
        if reason is None:
            raise
        message = f"{what} cannot be written: {reason}{hint and f'; {hint}'}"
        raise OSError(message) from error


def _reason(error: Exception) -> str | None:
    """Gives the system's message; None if it is not an error of the system."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    # TensorStore, which writes arrays for orbax, wraps errors of the system.
    found = re.search(r"os_error_code='(\d+)'", str(error))
    return os.strerror(int(found[1])) if found else None
