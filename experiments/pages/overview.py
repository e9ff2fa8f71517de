"""Sections on all runs of a report, whatever they trained."""

from collections.abc import Iterable, Mapping

from matplotlib.figure import Figure

from experiments.cli.progress import describe_change
from experiments.pages.figures import Line, draw_bars, draw_lines
from experiments.pages.sections import Picture, Section, Table
from olsgd_jax.training import Record, Run

COLUMNS = {
    "test_accuracy": "{:.2%}",
    "test_loss": "{:.4f}",
    "train_loss": "{:.4f}",
    "spread": "{:.3g}",
    "bytes_per_step": "{:,.0f}",
    "seconds": "{:.2f}",
}
"""Fields of a record in the tables, each with its format."""

MAX_LINES = 12  # in a figure of all runs

_MEANING = (
    "The last record of each run. Spread: mean squared distance of the workers to "
    "their consensus right after a mix; zero where a mix makes all workers equal. "
    "Bytes per step: bytes that one worker hands to the network, per local step. "
    "Seconds: time spent in rounds, without compilation and evaluation."
)


def heads(fields: Iterable[str] = tuple(COLUMNS)) -> list[str]:
    """Formats fields of a record as column heads."""
    return [_words(field).capitalize() for field in fields]


def cells(record: Record, fields: Iterable[str] = tuple(COLUMNS)) -> list[str]:
    """Formats a record as a row."""
    return [COLUMNS[field].format(getattr(record, field)) for field in fields]


def results(runs: Mapping[str, Run]) -> Section:
    """Shows the last record of every run; for a few runs, also curves."""
    nothing = ["—"] * len(COLUMNS)
    rows = [
        [name, *(cells(x.records[-1]) if x.records else nothing), _outcome(x)]
        for name, x in runs.items()
    ]
    few = len(runs) <= MAX_LINES
    records = {name: run.records for name, run in runs.items() if run.records}
    return Section(
        title="All runs",
        text=_MEANING,
        tables=[Table(["Run", *heads(), "Outcome"], rows), *_changes(runs)],
        pictures=_pictures(records) if few and records else (),
        folded=not few,
    )


def _outcome(run: Run) -> str:
    how = run.outcome or "stopped or still running"
    times = len(run.rollbacks)
    return f"{how}, after {times} rollback{'s' * (times > 1)}" if times else how


def _changes(runs: Mapping[str, Run]) -> list[Table]:
    """Shows where runs were resumed with different workers or devices."""
    rows = [
        [name, str(x.round), describe_change(x.before, x.after)]
        for name, run in runs.items()
        for x in run.resumes
    ]
    heads, title = ["Run", "After round", "Resumed with"], "Runs that changed layout"
    return [Table(heads, rows, title)] if rows else []


def options(runs: Mapping[str, Run]) -> Section:
    """Shows options that all runs share once, and others run by run."""
    names = dict.fromkeys(name for run in runs.values() for name in run.config)
    values = {
        name: [str(run.config.get(name, "")) for run in runs.values()] for name in names
    }
    shared = [[name, x[0]] for name, x in values.items() if len(set(x)) == 1]
    own = [name for name, x in values.items() if len(set(x)) > 1]
    tables = [Table(["Option", "Value"], shared, "Same in all runs")]
    if own:
        rows = [[run, *(values[name][i] for name in own)] for i, run in enumerate(runs)]
        tables.append(Table(["Run", *own], rows, "Different between runs"))
    return Section("Options of every run", "", tables, folded=True)


def _pictures(runs: Mapping[str, list[Record]]) -> list[Picture]:
    zero = [x for x, records in runs.items() if not any(r.spread for r in records)]
    note = f"Zero throughout: {', '.join(zero)}." if zero else ""
    sent = {name: records[-1].bytes_per_step for name, records in runs.items()}
    spread = _curves(runs, "round", "spread", log=True)
    return [
        Picture("Test accuracy", _curves(runs, "examples", "test_accuracy")),
        Picture("Train loss", _curves(runs, "examples", "train_loss", log=True)),
        Picture("Spread of the workers", spread, note),
        Picture("Communication", draw_bars(sent, "bytes per step")),
    ]


def _curves(
    runs: Mapping[str, list[Record]], x: str, y: str, log: bool = False
) -> Figure:
    lines = {
        name: Line([getattr(r, x) for r in own], [getattr(r, y) for r in own], look)
        for look, (name, own) in enumerate(runs.items())
    }
    return draw_lines(lines, _words(x), _words(y), log)


def _words(field: str) -> str:
    return field.replace("_", " ")
