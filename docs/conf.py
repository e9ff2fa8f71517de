"""Settings of the documentation site; `make docs` builds it."""

import pathlib
import re
import sys
import tomllib

ROOT = pathlib.Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from olsgd_jax import REDUCTIONS, STRATEGIES  # noqa: E402  (from this checkout)

project = "olsgd_jax"
author = "the olsgd_jax developers"
project_copyright = author
release = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
myst_heading_anchors = 3  # GitHub's anchors, so that links work in both places

# Docstrings write code in single backquotes.
default_role = "literal"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True  # exact(), not the tuple that it returns
autodoc_typehints = "none"
napoleon_numpy_docstring = False

html_theme = "sphinx_book_theme"
html_title = project
html_static_path = ["_static"]
html_css_files = ["tables.css"]
html_theme_options = {
    "home_page_in_toc": True,
    "navbar_persistent": [],
    "show_toc_level": 2,
    "use_download_button": False,
    "use_fullscreen_button": False,
}


def each_builder(app, docname, source):
    """Adds what a registry holds to its page, each with the equations of its file."""
    del app
    for room, registry in {"strategies": STRATEGIES, "reductions": REDUCTIONS}.items():
        if docname == f"reference/{room}":
            source[0] += "".join(
                f"\n## {name}\n\n```{{eval-rst}}\n"
                f".. automodule:: olsgd_jax.{room}.{name}\n\n"
                f".. autofunction:: olsgd_jax.{name}\n```\n"
                for name in registry
            )


def _code(match):
    mark = "\\ " if match["letter"] else ""
    return f"`{match[1]}`{mark}{match['letter']}"


def as_restructured_text(app, what, name, obj, options, lines):
    """Makes a docstring, which is plain text with backquotes, safe to parse.

    In a module's docstring the indented blocks are equations and tables. They become
    literal blocks, or their columns would be lost.
    """
    del app, name, obj, options
    # A letter right after a backquote, as in `Array`s, needs a mark between them.
    text = re.sub(r"`([^`]+)`(?P<letter>\w?)", _code, "\n".join(lines))
    lines[:] = text.split("\n")
    for i in reversed(range(1, len(lines))):
        before = next((x for x in reversed(lines[:i]) if x), "")
        opens = lines[i].startswith("    ") and not lines[i - 1]
        if what == "module" and opens and not before.startswith("    "):
            lines[i:i] = ["::", ""]


def without_fields(app, what, name, obj, skip, options):
    """Leaves out the fields of tuples; the signature of their class has them."""
    del app, what, name, options
    return skip or type(obj).__name__ == "_tuplegetter"


def setup(app):
    """Connects the functions above to what Sphinx reads."""
    app.connect("source-read", each_builder)
    app.connect("autodoc-skip-member", without_fields)
    app.connect("autodoc-process-docstring", as_restructured_text)
