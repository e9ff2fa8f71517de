"""What a report is made of: sections of plain text, tables and figures.

Nothing here is escaped; `page` and `markdown` write sections down, each in its form.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from matplotlib.figure import Figure


class Table(NamedTuple):
    """Cells as text; the first of every row names it."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    note: str = ""


class Picture(NamedTuple):
    """A figure as `figures` draws it, and what is said of it."""

    title: str
    figure: Figure
    note: str = ""


class Section(NamedTuple):
    """What answers one question."""

    title: str
    text: str
    tables: Sequence[Table] = ()
    pictures: Sequence[Picture] = ()
    folded: bool = False  # shown when asked for
    answer: str = ""  # what it all comes to, in a sentence


def slug(text: str) -> str:
    """Makes a name for files and links: small letters, digits and dashes.

    >>> slug("Trade-off: IID data, 16 workers")
    'trade-off-iid-data-16-workers'
    """
    letters = (x if x.isascii() and x.isalnum() else " " for x in text.lower())
    return "-".join("".join(letters).split())


def named_pictures(sections: Iterable[Section]) -> Iterator[tuple[str, Picture]]:
    """Goes through all pictures, each with a name of its own for its files."""
    names: dict[str, int] = {}
    for section in sections:
        for picture in section.pictures:
            name = slug(f"{section.title} {picture.title}")
            names[name] = names.get(name, 0) + 1
            yield f"{name}-{names[name]}" if names[name] > 1 else name, picture
