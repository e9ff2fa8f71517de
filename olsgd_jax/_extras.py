"""Names the extra to install if one of its packages is missing."""

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def needs_extra(extra: str) -> Iterator[None]:
    """Names the extra to install if an import inside the context fails.

    >>> with needs_extra("train"):
    ...     import nothing
    Traceback (most recent call last):
    ModuleNotFoundError: No module named 'nothing'; pip install "olsgd_jax[train]"
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f'{error}; pip install "olsgd_jax[{extra}]"', name=error.name
        ) from error
