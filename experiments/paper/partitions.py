"""Number of examples of each class on every worker."""

from collections.abc import Iterable, Sequence

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from experiments.pages.drawing import colour, drawn
from experiments.pages.sections import Picture, Section
from olsgd_jax.training import Run

MAX_WORKERS, MAX_CLASSES = 32, 20  # shown in a figure
MEANING = "Examples by worker and class, for the first seed of each partition."


def section(runs: Iterable[Run]) -> Section | None:
    """Shows each kind of partition once, since seeds change examples, not counts."""
    found: dict[tuple, tuple] = {}
    for run in sorted(runs, key=lambda run: run.config["seed"]):
        if run.facts:
            config, counts = run.config, run.facts["histogram"]
            if len(counts[0]) == 1:  # windows of a text have no classes
                continue
            what = config["dataset"], config["partition"], len(counts)
            found.setdefault(what, (config["seed"], counts))
    pictures = []
    for (dataset, partition, num_workers), (seed, counts) in sorted(found.items()):
        title = f"{dataset}, {partition}, {num_workers} workers, seed {seed}"
        pictures.append(Picture(title, draw_counts(counts), _note(counts)))
    return Section("Partitions", MEANING, pictures=pictures) if pictures else None


def draw_counts(counts: Sequence[Sequence[int]]) -> Figure:
    """Draws a table of counts, each cell shaded by its fraction of the row.

    A cell takes many SVG paths, too many for 1,000 workers in a page: only the first
    workers are shown.
    """
    totals = [sum(row) for row in counts]
    counts = [row[:MAX_CLASSES] for row in counts[:MAX_WORKERS]]
    with drawn(0.7 + 0.2 * len(counts)) as (figure, axes):
        for i, row in enumerate(counts):
            for j, count in enumerate(row):
                corner = (j - 0.5, i - 0.5)
                # Light enough for its number to be readable.
                shade = {"facecolor": colour(0), "alpha": 0.7 * count / totals[i]}
                axes.add_patch(Rectangle(corner, 1, 1, linewidth=0, **shade))
                axes.text(j, i, f"{count}", ha="center", va="center", size=8.5)
        axes.set(xlim=(-0.5, len(counts[0]) - 0.5), ylim=(len(counts) - 0.5, -0.5))
        axes.set(xlabel="class", ylabel="worker")
        axes.set_xticks(range(len(counts[0])))
        axes.set_yticks(range(len(counts)))
        axes.tick_params(length=0)
        axes.grid(visible=False)
        axes.spines[:].set_visible(False)
        return figure


def _note(counts: Sequence[Sequence[int]]) -> str:
    """Notes what is left out."""
    sizes = {
        "workers": (MAX_WORKERS, len(counts)),
        "classes": (MAX_CLASSES, len(counts[0])),
    }
    shown = [
        f"the first {most} of {num:,} {what}"
        for what, (most, num) in sizes.items()
        if num > most
    ]
    return f"Shows {' and '.join(shown)}." if shown else ""
