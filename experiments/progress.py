"""What is seen of runs while they train."""

from collections.abc import Iterable, Iterator

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from olsgd_jax import Record


def make_progress(console: Console) -> Progress:
    """Makes bars that count rounds."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=10),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[shown]}"),
        console=console,
    )


def shown(
    records: Iterable[Record], progress: Progress, task: TaskID
) -> Iterator[Record]:
    """Passes records on, and shows each on its way."""
    for record in records:
        rate = record.examples / record.seconds
        text = (
            f"{rate:,.0f} examples/s  loss {record.train_loss:.3f}  "
            f"accuracy {record.test_accuracy:.1%}"
        )
        progress.update(task, completed=record.round, shown=text)
        yield record
