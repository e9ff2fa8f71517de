"""How figures look, and how they are embedded in a page or written to files.

They are drawn in the light colours of the page. Inside the page, colours become CSS
variables, so that a figure follows the page to its dark colours; it takes its font too.
"""

import io
import pathlib
import re
from collections.abc import Iterator
from contextlib import contextmanager

import matplotlib
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.typing import RcKeyType

TEXT = "#1c2430"
COLOURS = ("#0072b2", "#d55e00", "#00825f", "#b14d86", "#9a6b00", "#3b78d8", "#6b6b6b")
"""The page's --text, and --run-0, --run-1 and so on, in its light colours."""

# Dash and gap in line widths, so that lines differ even without colours.
_DASHES = ((1, 0), (4, 1.6), (6, 1.6, 1.2, 1.6), (1.2, 1.6))
_MARKERS = "osD^vPX"
_WIDTH = 4.4  # inches
_COLOURED = ("text.color", "axes.labelcolor", "axes.edgecolor", "grid.color")
_STYLE: dict[RcKeyType, object] = {
    **dict.fromkeys((*_COLOURED, "xtick.color", "ytick.color"), TEXT),
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.size": 10,
    "grid.alpha": 0.15,
    "legend.frameon": False,
    "legend.fontsize": 9.5,
    "legend.handlelength": 2.6,
    "lines.markersize": 5,
    "svg.fonttype": "none",
    "svg.hashsalt": "olsgd_jax",  # the same records give the same page
    "text.parse_math": False,
}


def colour(look: int) -> str:
    """Returns the colour of line or bar number `look`; colours repeat."""
    return COLOURS[look % len(COLOURS)]


def line_style(look: int) -> dict:
    """Returns the style of line number `look` for matplotlib."""
    return {"color": colour(look), "dashes": _DASHES[look % len(_DASHES)]}


def marker(look: int) -> str:
    """Returns the marker of line number `look`."""
    return _MARKERS[look % len(_MARKERS)]


@contextmanager
def drawn(height: float) -> Iterator[tuple[Figure, Axes]]:
    """Makes a figure to draw in, `height` inches high."""
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(_WIDTH, height), layout="constrained")
        yield figure, figure.subplots()


def legend(figure: Figure, axes: Axes) -> None:
    """Adds a legend below the axes, in extra space."""
    handles, names = axes.get_legend_handles_labels()
    by_name = dict(zip(names, handles, strict=True))  # each once
    names, handles = list(by_name), list(by_name.values())
    if not names:
        return
    # As many columns as fit, with a generous width per letter.
    letters = max(map(len, names)) + 7
    columns = min(len(names), max(1, int(62 // letters)))
    rows = -(-len(names) // columns)
    figure.set_figheight(figure.get_figheight() + 0.1 + 0.18 * rows)
    figure.legend(
        handles, names, loc="outside lower center", ncols=columns, columnspacing=1.2
    )


def to_svg(figure: Figure, description: str) -> Markup:
    """Renders a figure as an element of a page, described for screen readers."""
    file = io.StringIO()
    _save(figure, file, "svg", transparent=True)
    svg = file.getvalue()
    svg = svg[svg.index("<svg") :]
    # The ids of groups would repeat between figures; nothing refers to them.
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    svg = svg.replace(TEXT, "currentColor")
    for i, value in enumerate(COLOURS):
        svg = svg.replace(value, f"var(--run-{i})")
    head = Markup('<svg role="img" aria-label="{}"').format(description)
    return Markup(svg.replace("<svg", head, 1))


def save(figure: Figure, path: pathlib.Path) -> None:
    """Writes a figure to path.svg and path.png."""
    for kind in ("svg", "png"):
        _save(figure, path.with_name(f"{path.name}.{kind}"), kind, dpi=200)


def _save(figure: Figure, file: io.StringIO | pathlib.Path, kind: str, **how) -> None:
    metadata = {"Date": None} if kind == "svg" else {"Software": None}
    with matplotlib.rc_context(_STYLE):
        figure.savefig(file, format=kind, metadata=metadata, **how)
