"""Progress bars of runs while they train."""

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

from olsgd_jax.training import Entry, Layout, Record, Resumed, Rollback


def make_progress(console: Console) -> Progress:
    """Makes progress bars that count rounds."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=10),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[shown]}"),
        console=console,
    )


def shown(
    records: Iterable[Entry], progress: Progress, task: TaskID
) -> Iterator[Entry]:
    """Passes records on, and shows each one."""
    for record in records:
        if isinstance(record, Rollback):
            progress.print(
                f"Diverged in round {record.round}: back to round {record.to}, with a "
                f"learning rate of {record.learning_rate:g}"
            )
            progress.update(task, completed=record.to)
        elif isinstance(record, Resumed):
            progress.print(
                f"Resumed after round {record.round} with "
                f"{describe_change(record.before, record.after)}"
            )
        else:
            progress.update(task, completed=record.round, shown=_text(record))
        yield record


def describe_change(before: Layout, after: Layout) -> str:
    """Describes what has changed.

    >>> before = Layout(16, None, "16 x cpu", 1)
    >>> describe_change(before, before._replace(num_workers=8, devices="8 x cpu"))
    '8 workers instead of 16, 8 x cpu instead of 16 x cpu'
    """
    forms = ("{} workers", "the mapping {}", "{}", "{} processes")
    changed = [
        f"{form.format(new)} instead of {old}"
        for form, old, new in zip(forms, before, after, strict=True)
        if old != new
    ]
    return ", ".join(changed)


def _text(record: Record) -> str:
    if record.tokens is not None:
        return (
            f"{record.tokens / record.seconds:,.0f} tokens/s  loss "
            f"{record.train_loss:.3f}  perplexity {record.test_perplexity:.2f}"
        )
    rate = record.examples / record.seconds
    return (
        f"{rate:,.0f} examples/s  loss {record.train_loss:.3f}  "
        f"accuracy {record.test_accuracy:.1%}"
    )
