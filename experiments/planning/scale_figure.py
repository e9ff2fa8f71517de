"""The results of `scale`: a table and a figure of utilisation for every model."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from experiments.pages.drawing import TEXT, colour, drawn, legend, line_style, marker
from experiments.pages.sections import Picture, Section, Table
from experiments.paper.published import NAMES
from olsgd_jax.types import Option

MEANING = (
    "Modelled, not measured. Utilisation is the share of time in which workers "
    "compute, in rounds of {sync_period} local steps. τ is the smallest sync period "
    "whose local steps cover the mean of Overlap Local-SGD. Accelerators have a peak "
    "of {flops:.3g} operations per second and reach {utilisation:.0%} of it. Each "
    "local step takes its shortest time plus an exponential delay with a mean of "
    "{stragglers:g} steps (seed {seed}). Models are float32. {links}."
)
LINK = "{link}: {bandwidth:.3g} bytes per second, latency {latency:g} s"
NOTE = (
    "{num_parameters:,.0f} parameters; {batch_size} examples per local step, "
    "{flops_per_example:.3g} operations each; accelerators per worker: {accelerators}."
)

Row = dict  # a model, a link, a number of workers, and their modelled times


def section(rows: Sequence[Row], options: Mapping[str, Option]) -> Section:
    """Shows the rows that `scale` made with these options of its command line."""
    links = "; ".join(dict.fromkeys(LINK.format(**row) for row in rows))
    tables, pictures = [], []
    for model in dict.fromkeys(row["model"] for row in rows):
        own = [row for row in rows if row["model"] == model]
        names = [NAMES[name] for name in own[0]["utilisation"]]
        heads = ["Link", "Workers", "Mean, s", "By", *names, "τ"]
        note = NOTE.format(**own[0])
        step = _digits(own[0]["step_seconds"])
        title = f"{model} parameters, local steps of {step} s"
        tables.append(Table(heads, list(map(_cells, own)), title, note))
        pictures.append(Picture(f"{model} parameters", draw_utilisation(own)))
    text = MEANING.format(**options, links=links)
    return Section("Scale", text, tables, pictures)


def draw_utilisation(rows: Sequence[Row]) -> Figure:
    """Draws each strategy in its own colour and each link in its own dashes."""
    links = dict.fromkeys(row["link"] for row in rows)
    with drawn(2.9) as (figure, axes):
        for look, strategy in enumerate(rows[0]["utilisation"]):
            axes.plot([], [], color=colour(look), label=NAMES[strategy])
            for i, link in enumerate(links):
                own = [row for row in rows if row["link"] == link]
                axes.plot(
                    [row["num_workers"] for row in own],
                    [row["utilisation"][strategy] for row in own],
                    marker=marker(look),
                    **{**line_style(i), "color": colour(look)},
                )
        for i, link in enumerate(links):
            axes.plot([], [], label=link, **{**line_style(i), "color": TEXT})
        axes.set(xlabel="workers", ylabel="utilisation", xscale="log", ylim=(0, 1.03))
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.xaxis.set_minor_formatter("")
        axes.yaxis.set_major_formatter(PercentFormatter(1))
        legend(figure, axes)
        return figure


def _cells(row: Row) -> list[str]:
    period = row["hiding_period"]
    return [
        row["link"],
        f"{row['num_workers']:,}",
        _digits(row["mean_seconds"]),
        row["reduction"],
        *(f"{_digits(100 * share)} %" for share in row["utilisation"].values()),
        f"{period:,}",
    ]


def _digits(value: float) -> str:
    """Formats a number with up to three significant digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
