"""The sections of a report: plain text, tables and figures.

Nothing here is escaped; `html_page` and `markdown` do that when they write sections.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from matplotlib.figure import Figure


class Table(NamedTuple):
    """Cells as text; the first cell of a row is its name."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    note: str = ""


class Picture(NamedTuple):
    """A figure with its title and caption."""

    title: str
    figure: Figure
    note: str = ""


class Quote(NamedTuple):
    """Lines of text that are shown as they are."""

    title: str
    text: str


class Section(NamedTuple):
    """The answer to one question."""

    title: str
    text: str
    tables: Sequence[Table] = ()
    pictures: Sequence[Picture] = ()
    folded: bool = False  # hidden until the reader opens it
    answer: str = ""  # the conclusion, in one sentence
    quotes: Sequence[Quote] = ()


def slug(text: str) -> str:
    """Makes a name for files and links: lower-case letters, digits and dashes.

    >>> slug("Trade-off: IID data, 16 workers")
    'trade-off-iid-data-16-workers'
    """
    letters = (x if x.isascii() and x.isalnum() else " " for x in text.lower())
    return "-".join("".join(letters).split())


def named_pictures(sections: Iterable[Section]) -> Iterator[tuple[str, Picture]]:
    """Yields all pictures, each with a unique name for its files."""
    names: dict[str, int] = {}
    for section in sections:
        for picture in section.pictures:
            name = slug(f"{section.title} {picture.title}")
            names[name] = names.get(name, 0) + 1
            yield f"{name}-{names[name]}" if names[name] > 1 else name, picture
