"""All measurements of every strategy on the network, case by case."""

from collections.abc import Iterable

from experiments.measured.network_numbers import numbers_of
from experiments.measured.network_records import Record, groups, name_of, rate_of
from experiments.pages.sections import Section, Table
from experiments.paper.presets import NUM_EXAMPLES

TIMES = (
    "Strategy", "τ", "Steps, ms", "Mean, ms", "Round, ms", "Exposed, ms", "Exposed",
    "Of limit", "Utilisation", "Epoch, s", "CPU, ms",
)  # fmt: skip
BYTES = ("Strategy", "τ", "Payload", "Expected", "Sent", "Difference")
MEANING = (
    "Medians over rounds. Exposed: with its quartiles, and in percent of the steps. "
    "Steps: a round without communication. Of limit: the round divided by the larger "
    f"of steps and mean. Epoch: modelled time of {NUM_EXAMPLES:,} examples, from the "
    "time of a round. CPU: time of one core that the transport takes per round. "
    "Payload: bytes that a worker hands to the means of a round. Expected: bytes that "
    "a host sends for that payload along a ring of m hosts, 2 (m − 1) / m times the "
    "payload plus the headers of each segment. Sent: bytes on its interface, where "
    "the kernel counts a single header for up to 64 kB."
)


def section(records: Iterable[Record]) -> Section | None:
    """Shows each number of hosts and bandwidth in separate tables."""
    tables = []
    for title, group in groups(records).items():
        for rate in dict.fromkeys(x["rate"] for x in group):
            own = [x for x in group if x["rate"] == rate]
            where = f"{rate_of(rate)}, {title}"
            tables.append(Table(TIMES, [times(x) for x in own], where))
            tables.append(Table(BYTES, [sizes(x) for x in own], f"Bytes: {where}"))
    if not tables:
        return None
    return Section("Network, case by case", MEANING, tables, folded=True)


def times(record: Record) -> list[str]:
    """Formats the times of a case; TIMES are the columns."""
    numbers = numbers_of(record["samples"])
    low, middle, high = (f"{1e3 * x:,.0f}" for x in numbers.exposed)
    examples = record["num_hosts"] * record["batch_size"] * record["sync_period"]
    return [
        *_name(record),
        *(f"{1e3 * x:,.0f}" for x in (numbers.steps, numbers.mean, numbers.round)),
        f"{middle} ({low} to {high})",
        f"{numbers.exposed_percent:,.0f}%",
        f"{numbers.of_limit:.2f}",
        f"{numbers.utilisation:.0%}",
        f"{NUM_EXAMPLES / examples * numbers.round:,.0f}",
        f"{1e3 * numbers.cpu:,.0f}",
    ]


def sizes(record: Record) -> list[str]:
    """Formats the bytes that a case sends; BYTES are the columns."""
    payload, expected = record["payload_bytes"], record["expected_bytes"]
    sent = numbers_of(record["samples"]).sent
    return [
        *_name(record),
        *(f"{x:,.0f}" for x in (payload, expected, sent)),
        f"{sent / expected - 1:+.1%}",
    ]


def _name(record: Record) -> list[str]:
    return [name_of(record["strategy"]), f"{record['sync_period']}"]
