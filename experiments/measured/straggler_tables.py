"""How much time strategies lose to slowed-down workers."""

from collections.abc import Iterable

from experiments.measured.network_records import Record, name_of, rate_of
from experiments.measured.straggler_numbers import Numbers, all_numbers
from experiments.pages.sections import Section, Table

STRAGGLERS = "stragglers.jsonl"
"""Name of a file of records."""

NAMES = {
    "none": "nothing",
    "slow_worker": "one worker, 30 % slower at every step",
    "random": "30 % at random steps, one worker on average",
    "exponential": "exponential times, 30 % on average",
    "pauses": "pauses of 5 steps after one step in 50",
}
HEADS = (
    "What slows workers down", "Step, ms", "Mean, ms", "Round, ms", "modelled",
    "Difference", "Idle, ms", "modelled",
)  # fmt: skip
MEANING = (
    "Measured in processes on hosts with shaped links. Each local step sleeps for a "
    "time that was drawn beforehand. Round: time until the last worker finished all "
    "rounds, divided by their number. Idle: the part of it in which a worker does not "
    "work, mean over workers. Step and mean: measured alone, without a slowdown; the "
    "modelled columns follow from these two. Medians over repetitions. A blocking "
    "strategy waits for the slowest worker in every round. With a delayed one a worker "
    "can run ahead of the others by up to a round, so only the worker that is slowest "
    "on average counts."
)


def section(records: Iterable[Record]) -> Section | None:
    """Shows each strategy in a separate table."""
    rows: dict[str, list[list[str]]] = {}
    for record, label, numbers in all_numbers(records):
        title = f"{name_of(label)}: {_title(record)}"
        rows.setdefault(title, []).append(_row(record, numbers))
    tables = [Table(HEADS, own, title) for title, own in rows.items()]
    return Section("Stragglers", MEANING, tables) if tables else None


def _row(record: Record, numbers: Numbers) -> list[str]:
    modelled = numbers.modelled
    return [
        NAMES[record["slowdown"]],
        f"{1e3 * numbers.step:.1f}",
        f"{1e3 * numbers.mean:.0f}",
        f"{1e3 * numbers.round:.0f}",
        f"{1e3 * modelled.seconds:.0f}",
        f"{numbers.round / modelled.seconds - 1:+.1%}",
        f"{1e3 * numbers.idle:.0f}",
        f"{1e3 * modelled.exposed:.0f}",
    ]


def _title(record: Record) -> str:
    where = f"{len(record['samples'])} hosts, {rate_of(record['rate'])}"
    return f"{where}, τ = {record['sync_period']}, {record['machine']}"
