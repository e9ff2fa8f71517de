"""Sections as one self-contained page of HTML."""

from collections.abc import Sequence

import jinja2

from experiments.pages.drawing import to_svg
from experiments.pages.sections import Section, slug

_TEMPLATES = jinja2.Environment(
    loader=jinja2.PackageLoader("experiments.pages", "."),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
)


def to_page(title: str, lead: Sequence[str], sections: Sequence[Section]) -> str:
    """Writes a page, with the facts of `lead` below its title."""
    return _TEMPLATES.get_template("page.html.jinja").render(
        title=title, lead=lead, sections=sections, slug=slug, to_svg=to_svg
    )
