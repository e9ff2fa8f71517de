"""Shows a benchmark's progress and result."""

import contextlib
from collections.abc import Iterator

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Column, Table

from olsgd_jax.bench.measure import Watch
from olsgd_jax.bench.result import Compared, Measured
from olsgd_jax.bench.turns import Quartiles

HEADS = ("strategy", "driver,\nform", "MB\nsent", "means\nalone", "round\nwith")
HEADS += ("round\nwithout", "exposed\n(quartiles)", "hidden", "pre-\ndicted", "ratio")
WIDTH = 140  # of the table; in a narrower one, rich would cut off cells


@contextlib.contextmanager
def watching(console: Console) -> Iterator[Watch]:
    """Shows the progress, but never draws while something is timed."""
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        console=console,
        auto_refresh=False,  # its thread would disturb the measurement
        disable=not console.is_terminal,
    ) as progress:
        tasks = []

        def begin(what: str, num_calls: int) -> None:
            if not console.is_terminal:
                console.print(f"{what} ...")
            tasks.append(progress.add_task(what, total=num_calls))

        def advance() -> None:
            progress.advance(tasks[-1])
            progress.refresh()

        yield Watch(begin, advance)


def row(found: Compared) -> list[str]:
    """Formats a strategy as a row of the table, whose columns are HEADS."""
    return [
        found.strategy,
        f"{found.driver}, {found.form}",
        f"{found.bytes_per_round / 1e6:,.1f}",
        milliseconds(found.means.median),
        milliseconds(found.with_mean.median),
        milliseconds(found.without_mean.median),
        _with_quartiles(found.exposed),
        f"{found.hidden:.0%}",
        milliseconds(found.predicted),
        f"{found.ratio:.2f}",
    ]


def facts(found: Measured) -> str:
    """Describes what all strategies have in common."""
    devices = found.data * found.fsdp
    processes = "1 process"
    if found.num_processes > 1:
        processes = f"{found.num_processes} processes"
    several = f" of {devices} devices each" if devices > 1 else ""
    return (
        f"{found.num_devices} x {found.device_kind} in {processes}, "
        f"jax {found.jax_version}; {found.num_workers} workers{several}. "
        f"Model {found.model}: {found.parameter_bytes / 1e6:,.1f} MB of parameters, "
        f"batches of {found.batch_size}. A local step takes "
        f"{_with_quartiles(found.step)} ms; the {found.reduction} mean of the model "
        f"{_with_quartiles(found.model_mean)} ms, and the mean of one number "
        f"{_with_quartiles(found.one_number_mean)} ms. The model of time explains the "
        f"two means with {found.bandwidth / 1e6:,.0f} MB/s and "
        f"{1e6 * found.latency:,.0f} µs per message. "
        f"Sync period {found.sync_period}: {found.sync_period_reason}."
    )


def show(found: Measured, console: Console) -> None:
    """Prints what all strategies have in common, and the table."""
    columns = [Column(head, justify="right", no_wrap=True) for head in HEADS]
    title = f"Milliseconds of a round, sync period {found.sync_period}"
    caption = f"medians of {found.repetitions} rounds; ratio: measured over predicted"
    table = Table(*columns, title=title, caption=caption, box=SIMPLE_HEAD)
    for one in found.strategies:
        table.add_row(*row(one))
    console.print(facts(found), highlight=False)
    console.width = max(console.width, WIDTH)
    console.print(table)


def milliseconds(seconds: float) -> str:
    """Formats a time in milliseconds with at least three digits.

    >>> milliseconds(0.0123456), milliseconds(1.23456), milliseconds(-0.00001)
    ('12.3', '1,235', '-0.010')
    """
    value = 1e3 * seconds
    digits = next((n for n in (0, 1, 2) if abs(value) >= 10 ** (2 - n)), 3)
    return f"{value:,.{digits}f}"


def _with_quartiles(found: Quartiles) -> str:
    first, median, third = (milliseconds(x) for x in found)
    return f"{median} ({first} to {third})"
