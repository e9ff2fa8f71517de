"""Files that come from anywhere, and are not what their names say."""

import contextlib
import pathlib
from collections.abc import Iterator, Sequence


@contextlib.contextmanager
def reading(files: Sequence[pathlib.Path]) -> Iterator[None]:
    """Names the files where what they hold cannot be shown."""
    try:
        yield
    except (ValueError, TypeError, AttributeError, LookupError, ArithmeticError) as x:
        names = ", ".join(map(str, files))
        raise ValueError(
            f"{names} must hold what the experiment of that name measures, but cannot "
            f"be shown: {type(x).__name__}: {x}"
        ) from x
