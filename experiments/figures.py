"""Figures of runs as SVG that takes its colours and font from the page around it."""

import io
import re
from collections.abc import Mapping, Sequence

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator, NullLocator, PercentFormatter
from matplotlib.typing import RcKeyType

from olsgd_jax import Record

Runs = Mapping[str, Sequence[Record]]  # by name, none of them empty

NUM_COLOURS = 7  # that page.html has for runs; an eighth run gets the first again
_TEXT = "#0a0b0c"  # stands for the page's colour of text
_RUN = [f"#a0b0c{i}" for i in range(NUM_COLOURS)]  # stands for --run-0, --run-1 ...
# Line and gap in widths of the line, so that runs differ without their colours too.
_DASHES = ((1, 0), (4, 1.6), (6, 1.6, 1.2, 1.6), (1.2, 1.6))
_COLOURED = ("text.color", "axes.labelcolor", "axes.edgecolor", "grid.color")
_STYLE: dict[RcKeyType, object] = {
    **dict.fromkeys((*_COLOURED, "xtick.color", "ytick.color"), _TEXT),
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.size": 9,
    "grid.alpha": 0.15,
    "svg.fonttype": "none",
    "svg.hashsalt": "olsgd_jax",  # the same records give the same page
    "text.parse_math": False,
}


def curves(runs: Runs, x: str, y: str, log: bool = False) -> str:
    """Draws one field of the records over another, a line for every run.

    Zero has no place on a logarithmic axis: there, a run of zeros has no line.
    """
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(4.4, 2.9), layout="constrained")
        axes = figure.subplots()
        for i, records in enumerate(runs.values()):
            drawn = [r for r in records if getattr(r, y) > 0 or not log]
            axes.plot(
                [getattr(r, x) for r in drawn],
                [getattr(r, y) for r in drawn],
                color=_RUN[i % NUM_COLOURS],
                dashes=_DASHES[i % len(_DASHES)],
                marker="o" if len(drawn) == 1 else None,
            )
        axes.set(xlabel=_words(x), ylabel=_words(y))
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        if log:
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes.yaxis.set_minor_locator(NullLocator())
            axes.yaxis.set_major_formatter("{x:g}")
        if y.endswith("accuracy"):
            axes.yaxis.set_major_formatter(PercentFormatter(1))
        return _svg(figure, f"{_words(y)} over {_words(x)}")


def key(i: int) -> str:
    """Draws a piece of the line that run i has in `curves`."""
    dashes = " ".join(str(2 * length) for length in _DASHES[i % len(_DASHES)])
    return (
        '<svg class="key" viewBox="0 0 32 8" aria-hidden="true"><path d="M0 4H32" '
        f'stroke="var(--run-{i % NUM_COLOURS})" stroke-width="2.5" '
        f'stroke-dasharray="{dashes}"/></svg>'
    )


def bars(runs: Runs, field: str) -> str:
    """Draws the last value of a field, a bar for every run."""
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(4.4, 2.9), layout="constrained")
        axes = figure.subplots()
        values = [getattr(records[-1], field) for records in runs.values()]
        colours = [_RUN[i % NUM_COLOURS] for i in range(len(runs))]
        drawn = axes.barh(range(len(runs)), values, height=0.6, color=colours)
        axes.bar_label(drawn, [f"{value:,.0f}" for value in values], padding=3)
        axes.set_yticks(range(len(runs)), labels=list(runs))
        axes.invert_yaxis()
        axes.margins(x=0.25)
        axes.grid(visible=False, axis="y")
        axes.set(xlabel=_words(field))
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        return _svg(figure, f"{_words(field)} of every run")


def _words(field: str) -> str:
    return field.replace("_", " ")


def _svg(figure: Figure, description: str) -> str:
    """Renders a figure as an element for a page; `description` is for the blind."""
    file = io.StringIO()
    figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    svg = file.getvalue()
    svg = svg[svg.index("<svg") :]
    # Names of groups would repeat from figure to figure; nothing refers to them.
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    for colour, name in [(_TEXT, "currentColor")] + [
        (colour, f"var(--run-{i})") for i, colour in enumerate(_RUN)
    ]:
        svg = svg.replace(colour, name)
    return svg.replace("<svg", f'<svg role="img" aria-label="{description}"', 1)
