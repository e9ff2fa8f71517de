"""Sections as Markdown."""

import html
from collections.abc import Iterable, Mapping

from experiments.pages.sections import Section, Table, named_pictures


def to_markdown(
    sections: Iterable[Section], images: Mapping[str, str] | None = None
) -> str:
    """Writes sections as Markdown; `images` has paths by `named_pictures`' names."""
    sections, blocks = list(sections), []
    pictures = named_pictures(sections)
    for section in sections:
        blocks += [f"## {escape(section.title)}", escape(section.answer)]
        blocks.append(escape(section.text))
        for table in section.tables:
            blocks += [f"### {escape(table.title)}", to_table(table)]
            blocks.append(escape(table.note))
        for name, picture in (next(pictures) for _ in section.pictures):
            if images:
                blocks.append(f"![{escape(picture.title)}]({images[name]})")
                blocks.append(escape(picture.note))
        for quote in section.quotes:
            lines = html.escape(quote.text, quote=False)
            blocks += [f"### {escape(quote.title)}", f"<pre>\n{lines}\n</pre>"]
    return "\n\n".join(block for block in blocks if block.strip("# ")) + "\n"


def to_table(table: Table) -> str:
    """Writes a table as lines of Markdown."""
    rows = [table.heads, ["---"] * len(table.heads), *table.rows]
    return "\n".join(f"| {' | '.join(map(escape, row))} |" for row in rows)


def escape(text: str) -> str:
    """Escapes text so that it is no tag, no link and no end of a cell."""
    text = html.escape(" ".join(text.split()), quote=False)
    for mark in ("\\", "|", "`", "*"):
        text = text.replace(mark, f"\\{mark}")
    return text.replace("](", "]\\(")
