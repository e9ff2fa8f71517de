"""Records to make pages of, and what is read back from pages."""

import re

import numpy as np

from olsgd_jax.training import Config, Evaluation, Record, Run


def of_consensus(loss, accuracy):
    return {"consensus": Evaluation(loss, accuracy)}


RECORDS = [
    Record(1, 4, 512, 0.1, 2.0, of_consensus(1.9, 0.5), 0.25, 4810.0, 0.125),
    Record(2, 8, 1024, 0.1, 1.0, of_consensus(0.75, 0.875), 0.5, 1234567.0, 0.25),
]
FACTS = {
    "num_parameters": 1000,
    "bytes_per_round": 4000,
    "num_steps": 8,
    "num_epochs": 2.0,
    "histogram": [[300, 100], [50, 62]],
}


def records_with(**columns):
    [num] = {len(column) for column in columns.values()}
    return [
        RECORDS[0]._replace(**{name: x[i] for name, x in columns.items()})
        for i in range(num)
    ]


def run_of(strategy, sync_period, *accuracies, outcome="finished", **options):
    """A run on the paper's data, with a record for each accuracy."""
    facts = FACTS | options.pop("facts", {})
    records = records_with(
        examples=[512 * (i + 1) for i in range(len(accuracies))],
        tests=[of_consensus(1.0, accuracy) for accuracy in accuracies],
    )
    config = Config(
        dataset="cifar10", strategy=strategy, sync_period=sync_period, **options
    )
    return Run(vars(config).copy(), facts, {}, None, "1 x cpu", records, [], outcome)


def svg_of(page, figure):
    return page[page.index(f"<h3>{figure}</h3>") :].split("</svg>")[0]


def line_of(page, figure, run):
    """The points of line `run` in a figure, left to right; legends have no clip."""
    path = rf'<path d="([^"]*)" clip-path[^>]*stroke: var\(--run-{run}\)'
    lines = re.findall(path, svg_of(page, figure))
    points = re.findall(r"[ML] (\S+) (\S+)", lines[0]) if lines else []
    return np.array(points, dtype=float).reshape(-1, 2)


def bars_of(page, figure, run):
    """Left, right and middle height of bars in the colour of `run`, in their order."""
    path = rf'<path d="([^"]*)" clip-path[^>]*fill: var\(--run-{run}\)'
    bars = []
    for corners in re.findall(path, svg_of(page, figure)):
        x, y = np.array(re.findall(r"[ML] (\S+) (\S+)", corners), dtype=float).T
        bars.append((x.min(), x.max(), (y.min() + y.max()) / 2))
    return np.array(bars)


def table_after(page, title):
    """The cells of the first table below a title, row by row."""
    table = page[page.index(title) :].split("<tbody>", 1)[1].split("</tbody>")[0]
    return [
        re.findall("<t[hd][^>]*>(.*?)</t[hd]>", x) for x in table.split("</tr>")[:-1]
    ]


def relative(values):
    """Values as parts of the way from the first to the last."""
    values = np.asarray(values, dtype=float)
    return (values - values[0]) / (values[-1] - values[0])
