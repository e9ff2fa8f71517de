"""Files that cannot be written: which, and why."""

import contextlib
import os
import re
from collections.abc import Iterator


@contextlib.contextmanager
def writing(what: object, hint: str = "") -> Iterator[None]:
    """Says of an error of the system what could not be written.

    Args:
      what: as in the path of a file; what the system says has none on a full disk.
      hint: what can be done about it.

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
    """Gives what the system says; None if the error is not of the system."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    # What writes arrays for orbax has errors of its own, with the system's inside.
    found = re.search(r"os_error_code='(\d+)'", str(error))
    return os.strerror(int(found[1])) if found else None
