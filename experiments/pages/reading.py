"""Reading of files from anywhere, which may not be what their names say."""

import contextlib
import json
import pathlib
from collections.abc import Iterator, Sequence


@contextlib.contextmanager
def reading(files: Sequence[pathlib.Path]) -> Iterator[None]:
    """Names the files in the error if their content cannot be shown."""
    try:
        yield
    except (
        ValueError,
        TypeError,
        AttributeError,
        LookupError,
        ArithmeticError,
        RecursionError,
    ) as error:
        names = ", ".join(map(str, files))
        raise ValueError(
            f"{names} must hold what the experiment of that name measures, but cannot "
            f"be shown: {type(error).__name__}: {error}"
        ) from error


def check_regular(file: pathlib.Path) -> None:
    """Refuses files that may never end, such as a named pipe or a device."""
    if file.exists() and not file.is_file():
        raise ValueError(f"{file} must be a regular file")


def parse_json(text: str) -> dict:
    """Parses a JSON object and makes all its text printable."""
    return with_printable_text(json.loads(text))


def printable(text: str) -> str:
    """Replaces characters that a page cannot show.

    These are control characters, and the surrogates that represent the bytes of a file
    name that is not UTF-8.

    >>> printable("run\\udcff\\n")
    'run\ufffd\ufffd'
    """
    return "".join(x if x.isprintable() else "\N{REPLACEMENT CHARACTER}" for x in text)


def with_printable_text(values: dict) -> dict:
    """Makes all names and texts of a JSON object printable."""
    return {printable(name): _printable_value(x) for name, x in values.items()}


def _printable_value(value: object) -> object:
    match value:
        case str():
            return printable(value)
        case dict():
            return with_printable_text(value)
        case list():
            return [_printable_value(x) for x in value]
    return value
