"""Tables on the terminal: a column of names, then columns of numbers."""

from collections.abc import Iterable, Sequence

from rich.table import Column, Table


def make_table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], title: str | None = None
) -> Table:
    """Makes a table whose first column holds names and is never wrapped."""
    first, *others = heads
    numbers = [Column(head, justify="right") for head in others]
    table = Table(Column(first, no_wrap=True), *numbers, title=title)
    for row in rows:
        table.add_row(*row)
    return table
