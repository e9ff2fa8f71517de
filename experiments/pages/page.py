"""Sections as one page of HTML that needs nothing but a browser."""

import html
import pathlib
import string
from collections.abc import Iterable, Sequence

from experiments.pages.drawing import to_svg
from experiments.pages.sections import Picture, Section, Table, slug


def to_page(title: str, lead: Iterable[str], sections: Sequence[Section]) -> str:
    """Writes a page.

    Args:
      title: of the page.
      lead: facts that stand below it.
      sections: in their order.
    """
    page = pathlib.Path(__file__).with_name("page.html").read_text(encoding="utf-8")
    links = "".join(
        f'<a href="#{slug(section.title)}">{html.escape(section.title)}</a>'
        for section in sections
    )
    return string.Template(page).substitute(
        title=html.escape(title),
        lead=" · ".join(map(html.escape, lead)),
        contents=links if len(sections) > 3 else "",
        sections="".join(map(_section, sections)),
    )


def _section(section: Section) -> str:
    head = f'<h2 id="{slug(section.title)}">{html.escape(section.title)}</h2>'
    answer = f"<p>{html.escape(section.answer)}</p>" if section.answer else ""
    text = f'<p class="quiet">{html.escape(section.text)}</p>' if section.text else ""
    tables = "".join(map(_table, section.tables))
    pictures = "".join(map(_picture, section.pictures))
    body = f'{answer}{text}{tables}<div class="figures">{pictures}</div>'
    if section.folded:
        return f"<details><summary>{head}</summary>{body}</details>\n"
    return f"<section>{head}{body}</section>\n"


def _table(table: Table) -> str:
    title = f"<h3>{html.escape(table.title)}</h3>" if table.title else ""
    head = "".join(f'<th scope="col">{html.escape(x)}</th>' for x in table.heads)
    body = "".join(map(_row, table.rows))
    note = f'<p class="quiet">{html.escape(table.note)}</p>' if table.note else ""
    return (
        f'{title}<div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>{note}"
    )


def _row(cells: Sequence[str]) -> str:
    first, *rest = map(html.escape, cells)
    return (
        f'<tr><th scope="row">{first}</th>'
        + "".join(f"<td>{cell}</td>" for cell in rest)
        + "</tr>"
    )


def _picture(picture: Picture) -> str:
    title = html.escape(picture.title)
    return (
        f"<figure><h3>{title}</h3>{to_svg(picture.figure, title)}"
        f"<figcaption>{html.escape(picture.note)}</figcaption></figure>"
    )
