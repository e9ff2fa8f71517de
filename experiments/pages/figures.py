"""Kinds of figures: lines and bars."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import (
    EngFormatter,
    LogLocator,
    MaxNLocator,
    NullLocator,
    PercentFormatter,
)

from experiments.pages.drawing import colour, drawn, legend, line_style, marker
from experiments.pages.labels import Points, place_labels

MOST_TICKS = 8
"""Points across a logarithmic axis up to which each has a tick of its own."""


class Line(NamedTuple):
    """Points that belong together."""

    x: Sequence[float]
    y: Sequence[float]
    look: int  # number of its colour, dashes and marker
    labels: Sequence[str] = ()  # one per point
    marked: bool = False  # whether points have a marker


def draw_lines(
    lines: Mapping[str, Line], x: str, y: str, log: bool = False, log_x: bool = False
) -> Figure:
    """Draws lines, with a legend below.

    A logarithmic axis has no zero, so a line of zeros is not drawn there.

    Args:
      lines: lines by name.
      x: label of the horizontal axis.
      y: label of the vertical axis, which is in percent if the label ends with
        accuracy, error or utilisation.
      log: whether the vertical axis is logarithmic.
      log_x: whether the horizontal axis is; it then has ticks at the points only, if
        these are few.
    """
    with drawn(2.9) as (figure, axes):
        for name, line in lines.items():
            shown = [i for i, value in enumerate(line.y) if value > 0 or not log]
            if not shown:
                continue
            axes.plot(
                [line.x[i] for i in shown],
                [line.y[i] for i in shown],
                label=name,
                marker=marker(line.look) if line.marked or len(shown) == 1 else None,
                **line_style(line.look),
            )
        axes.set(xlabel=x, ylabel=y)
        axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
        if max((value for line in lines.values() for value in line.x), default=0) > 999:
            axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        if log:
            _make_logarithmic(axes)
        if log_x:
            places = sorted({value for line in lines.values() for value in line.x})
            axes.set_xscale("log")
            axes.xaxis.set_minor_locator(NullLocator())
            if len(places) <= MOST_TICKS:
                axes.set_xticks(places, labels=[f"{value:g}" for value in places])
            else:
                axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
                axes.xaxis.set_major_formatter("{x:g}")
        if y.endswith(("accuracy", "error", "utilisation")):
            axes.yaxis.set_major_formatter(PercentFormatter(1))
        legend(figure, axes)
        points = [
            Points(line.x, line.y, line.labels, colour(line.look))
            for line in lines.values()
            if line.labels
        ]
        if points:
            axes.margins(x=0.1, y=0.1)
            place_labels(figure, axes, points)
        return figure


def draw_bars(values: Mapping[str, float], x: str) -> Figure:
    """Draws a bar for every value."""
    with drawn(max(2.9, 0.5 + 0.22 * len(values))) as (figure, axes):
        places = range(len(values))
        bars = axes.barh(places, list(values.values()), height=0.6)
        for place, bar in zip(places, bars, strict=True):
            bar.set_color(colour(place))
        axes.bar_label(bars, [f"{value:,.0f}" for value in values.values()], padding=3)
        axes.set_yticks(places, labels=list(values))
        axes.invert_yaxis()
        axes.margins(x=0.25)
        axes.grid(visible=False, axis="y")
        axes.set(xlabel=x)
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        return figure


def _make_logarithmic(axes: Axes) -> None:
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter("{x:g}")
