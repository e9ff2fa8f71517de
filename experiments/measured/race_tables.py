"""Seconds to an accuracy on hosts: a table, and accuracy over seconds as a figure."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from matplotlib.figure import Figure

from experiments.links.hosts import UNSHAPED
from experiments.measured.network_records import rate_of
from experiments.measured.race_contenders import title_of
from experiments.pages.figures import Line, draw_lines
from experiments.pages.sections import Picture, Section, Table

Run = Mapping  # a record of a run

MEANING = (
    "Measured in processes on hosts with shaped links, one worker on each, pinned to a "
    "core. The clock is the wall-clock time of rounds on process 0; compilation and "
    "evaluation are not on it. A run ends at the target. Seconds and local steps are "
    "interpolated between the evaluations on both sides of an accuracy, and the bytes "
    "are those that host 0 sends until the target, from the counter of its interface. "
    "A step without communication is one of the same round with nothing sent. The "
    "infinitely fast network is modelled from what was measured: the local steps of "
    "synchronous SGD, each as long as without communication."
)
EARLIER = 0.9
"""The accuracy that is also timed, as a part of the target."""


class Finish(NamedTuple):
    """When a run reaches an accuracy."""

    seconds: float
    steps: float  # local steps of each worker


def finish(points: Sequence[Mapping], target: float) -> Finish | None:
    """Interpolates linearly between the evaluations on both sides of the target.

    If the first one is already there, it counts. Returns None if none is.

    >>> points = [{"seconds": 2, "step": 10, "accuracy": 0.3},
    ...           {"seconds": 4, "step": 20, "accuracy": 0.5}]
    >>> finish(points, 0.4)
    Finish(seconds=3.0, steps=15.0)
    """
    for i, point in enumerate(points):
        if point["accuracy"] >= target:
            before = points[i - 1] if i else point
            gained = point["accuracy"] - before["accuracy"]
            part = (target - before["accuracy"]) / gained if gained else 1.0
            seconds, steps = (
                before[x] + part * (point[x] - before[x]) for x in ("seconds", "step")
            )
            return Finish(float(seconds), float(steps))
    return None


def section(runs: Iterable[Run]) -> Section:
    """Shows every number of hosts and every rate in a table and a figure."""
    runs = list(runs)
    yardsticks = {x["num_hosts"]: x for x in runs if x["rate"] == UNSHAPED}
    places = dict.fromkeys((x["num_hosts"], x["rate"], x["target"]) for x in runs)
    tables, pictures = [], []
    for place in places:
        num_hosts, rate, target = place
        if rate == UNSHAPED:
            continue
        own = [x for x in runs if (x["num_hosts"], x["rate"], x["target"]) == place]
        own = sorted(own, key=lambda x: _seconds(x, target))
        where = f"{num_hosts} hosts, {rate_of(rate)}"
        title = f"Time to {100 * target:g} %: {where}"
        tables.append(_table(title, yardsticks.get(num_hosts), own, target))
        figure = _figure(yardsticks.get(num_hosts), own)
        note = f"Test accuracy of the consensus; the target is {100 * target:g} %."
        pictures.append(Picture(f"{where}", figure, note))
    return Section("Race", MEANING, tables, pictures)


def _table(
    title: str, yardstick: Run | None, own: Sequence[Run], target: float
) -> Table:
    accuracies = EARLIER * target, target
    heads = ["Contender", "Learning rate", "ms a step", "ms without communication"]
    heads += [f"Seconds to {100 * x:g} %" for x in accuracies]
    heads += ["Times the infinitely fast network", "Local steps", "MB sent"]
    rows, ideal = [], None
    if yardstick:
        ends = [finish(yardstick["points"], x) for x in accuracies]
        step = yardstick["seconds_per_round_alone"] / yardstick["config"]["sync_period"]
        name = f"{title_of(yardstick['contender'])}, infinitely fast network"
        each = f"{1e3 * step:.1f}"
        seconds = [end and end.steps * step for end in ends]
        ideal = seconds[1]
        shown = ["—" if x is None else f"{x:.1f}" for x in seconds]
        steps = "—" if ends[1] is None else f"{ends[1].steps:,.0f}"
        times = "—" if ideal is None else "1.00"
        rows.append([name, _rate(yardstick), each, each, *shown, times, steps, "—"])
        rows.append(_row(yardstick, accuracies, ideal, ", links not shaped"))
    rows += [_row(x, accuracies, ideal) for x in own]
    x = own[0]
    note = (
        f"An MLP of {x['num_parameters']:,} parameters on {x['config']['dataset']}, "
        f"batches of {x['config']['batch_size']} per worker, seed "
        f"{x['config']['seed']}; {x['machine']}."
    )
    return Table(heads, rows, title, note)


def _row(
    run: Run, accuracies: Sequence[float], ideal: float | None, detail: str = ""
) -> list[str]:
    last, tau = run["points"][-1], run["config"]["sync_period"]
    early, end = (finish(run["points"], x) for x in accuracies)
    cells = [
        f"{title_of(run['contender'])}{detail}",
        _rate(run),
        f"{1e3 * last['seconds'] / last['step']:.1f}",
        f"{1e3 * run['seconds_per_round_alone'] / tau:.1f}",
        "—" if early is None else f"{early.seconds:.1f}",
    ]
    if end is None:
        said = f"{run['outcome']} at {last['seconds']:.0f} with {last['accuracy']:.1%}"
        return [*cells, said, "—", f"{last['step']:,}", _sent(run, last["step"])]
    times = "—" if ideal is None else f"{end.seconds / ideal:.2f}"
    shown = f"{end.seconds:.1f}", times, f"{end.steps:,.0f}", _sent(run, end.steps)
    return [*cells, *shown]


def _figure(yardstick: Run | None, own: Sequence[Run]) -> Figure:
    named = {title_of(x["contender"]): x for x in own}
    if yardstick:
        named[f"{title_of(yardstick['contender'])}, links not shaped"] = yardstick
    lines = {
        name: Line(
            [x["seconds"] for x in run["points"]],
            [x["accuracy"] for x in run["points"]],
            look,
        )
        for look, (name, run) in enumerate(named.items())
    }
    return draw_lines(lines, "seconds", "test accuracy", log_x=True)


def _seconds(run: Run, target: float) -> float:
    end = finish(run["points"], target)
    return end.seconds if end else math.inf


def _rate(run: Run) -> str:
    return f"{run['config']['learning_rate']:g}"


def _sent(run: Run, num_steps: float) -> str:
    num_rounds = num_steps / run["config"]["sync_period"]
    return f"{run['sent_bytes_per_round'] * num_rounds / 1e6:,.0f}"
