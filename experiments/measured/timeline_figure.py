"""What `timeline` measured, drawn in lanes like the paper's pipeline."""

import pathlib
import statistics
from collections.abc import Iterable, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.pages.drawing import colour, drawn, legend
from experiments.pages.reading import parse_json
from experiments.pages.sections import Picture, Section, Table
from experiments.paper.published import NAMES

TIMELINE = "timeline.json"
"""Name of a file of measured times."""

MEANING = (
    "Measured in two processes connected by a slow link: medians over workers and "
    "rounds, in milliseconds. A mean is timed from its call to its result, so the time "
    "of a worker that arrives early includes waiting for the other. Delayed means, and "
    "the mixes after them, run bucket by bucket; their times are added up. Both "
    "figures have the same scale."
)
LANES = {"local steps": 0, "mean": 1, "mix": 0}
"""Parts of a round, each in the lane for computing (0) or sending (1)."""

Span = dict  # worker, round, part, and its start and end in seconds


def section(files: Iterable[pathlib.Path]) -> Section | None:
    """Shows the measured times, each strategy in a figure of the same scale."""
    tables, pictures = [], []
    for file in files:
        measured = parse_json(file.read_text(encoding="utf-8"))
        title = (
            f"{measured['link']} link, τ = {measured['sync_period']}, "
            f"{measured['num_parameters']:,} parameters, {measured['machine']}"
        )
        strategies: dict[str, list[Span]] = measured["spans"]
        heads = [x.capitalize() for x in (*LANES, "round")]
        rows = [_row(name, spans) for name, spans in strategies.items()]
        tables.append(Table(["Strategy", *heads], rows, title))
        until = max(x["end"] for spans in strategies.values() for x in spans)
        for name, spans in strategies.items():
            pictures.append(Picture(NAMES[name], draw_lanes(spans, until)))
    return Section("Timeline", MEANING, tables, pictures) if tables else None


def round_lengths(spans: Sequence[Span]) -> list[float]:
    """Computes the time from first start to last end of every worker's rounds."""
    return [
        max(span["end"] for span in own) - min(span["start"] for span in own)
        for own in _rounds(spans)
    ]


def draw_lanes(spans: Sequence[Span], until: float) -> Figure:
    """Draws what every worker computed and sent, on an axis that ends at `until`."""
    lanes = _lanes(spans)
    with drawn(0.6 + 0.32 * len(lanes)) as (figure, axes):
        _draw_bars(axes, spans, 0)
        axes.set(xlim=(0, until), ylim=(len(lanes) - 0.5, -0.5))
        _label(figure, axes, dict(enumerate(lanes)))
        return figure


def draw_groups(groups: Mapping[str, Sequence[Span]]) -> Figure:
    """Draws lanes of several strategies below each other, on one axis of time."""
    until = max(span["end"] for spans in groups.values() for span in spans)
    labels: dict[int, str] = {}
    heads: dict[int, str] = {}
    for name, spans in groups.items():
        heads[len(labels) + len(heads)] = name
        first = len(labels) + len(heads)
        labels |= {first + i: x for i, x in enumerate(_lanes(spans))}
    num = len(labels) + len(heads)
    with drawn(0.6 + 0.3 * num) as (figure, axes):
        for (row, name), spans in zip(heads.items(), groups.values(), strict=True):
            axes.text(0, row + 0.3, name, va="bottom", weight="bold")
            _draw_bars(axes, spans, row + 1)
        axes.set(xlim=(0, until), ylim=(num - 0.5, -0.5))
        _label(figure, axes, labels)
        return figure


def _lanes(spans: Sequence[Span]) -> list[str]:
    kinds = ("computes", "sends")
    return [f"worker {i} {kind}" for i in _workers(spans) for kind in kinds]


def _workers(spans: Sequence[Span]) -> list[int]:
    return sorted({span["worker"] for span in spans})


def _draw_bars(axes: Axes, spans: Sequence[Span], first: int) -> None:
    """Draws lanes, starting in row `first`."""
    rows = {worker: first + 2 * i for i, worker in enumerate(_workers(spans))}
    for look, (part, lane) in enumerate(LANES.items()):
        own = [span for span in spans if span["part"] == part]
        if not own:  # without bars, the legend would show the part without a colour
            continue
        axes.barh(
            [rows[span["worker"]] + lane for span in own],
            [span["end"] - span["start"] for span in own],
            left=[span["start"] for span in own],
            height=0.62,
            color=colour(look),
            label=part,
        )


def _label(figure: Figure, axes: Axes, lanes: Mapping[int, str]) -> None:
    axes.set_xlabel("seconds")
    axes.set_yticks(list(lanes), labels=list(lanes.values()))
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    legend(figure, axes)


def _row(name: str, spans: Sequence[Span]) -> list[str]:
    """Formats the medians of a strategy over workers and rounds."""
    lengths = [
        [
            sum(span["end"] - span["start"] for span in own)
            for own in _rounds(span for span in spans if span["part"] == part)
        ]
        for part in LANES
    ]
    medians = [statistics.median(x) for x in [*lengths, round_lengths(spans)]]
    return [NAMES[name], *(f"{1e3 * x:.0f}" for x in medians)]


def _rounds(spans: Iterable[Span]) -> Iterable[list[Span]]:
    """Groups spans by worker and round."""
    rounds: dict[tuple[int, int], list[Span]] = {}
    for span in spans:
        rounds.setdefault((span["worker"], span["round"]), []).append(span)
    return rounds.values()
