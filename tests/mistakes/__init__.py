"""Mistakes that users make, by the words that docs/errors.md has for them."""

import contextlib
import io
import sys
import warnings
from collections.abc import Callable
from unittest import mock

from olsgd_jax.training import PreemptedError

USER_ERRORS = (
    PreemptedError,
    ValueError,
    TypeError,
    OSError,
    ModuleNotFoundError,
    FloatingPointError,
    AssertionError,
)


def run(main: Callable[[], object], *words: object) -> None:
    """Runs a script in this process, with these words on its command line."""
    with mock.patch.object(sys, "argv", ["script", *map(str, words)]):
        main()


def said_by(mistake: Callable, directory) -> str:
    """Makes a mistake, and gives what is said: an error, a last line or a warning."""
    written = io.StringIO()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            with contextlib.redirect_stderr(written):
                mistake(directory)
        except SystemExit as stop:
            lines = written.getvalue().splitlines()
            said = stop.code if isinstance(stop.code, str) else lines[-1]
            return said.partition(": error: ")[2] or said
        except USER_ERRORS as error:
            return " ".join(str(error).split())
    assert warned, "nothing was said"
    return str(warned[-1].message)
