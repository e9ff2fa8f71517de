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

from olsgd_jax import Record, Rollback


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
    records: Iterable[Record | Rollback], progress: Progress, task: TaskID
) -> Iterator[Record | Rollback]:
    """Passes records on, and shows each on its way."""
    for record in records:
        if isinstance(record, Rollback):
            progress.print(
                f"Diverged in round {record.round}: back to round {record.to}, with a "
                f"learning rate of {record.learning_rate:g}"
            )
            progress.update(task, completed=record.to)
        else:
            progress.update(task, completed=record.round, shown=_text(record))
        yield record


def _text(record: Record) -> str:
    rate = record.examples / record.seconds
    return (
        f"{rate:,.0f} examples/s  loss {record.train_loss:.3f}  "
        f"accuracy {record.test_accuracy:.1%}"
    )
