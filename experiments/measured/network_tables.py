"""Utilisation and exposed communication, over bandwidths and sync periods."""

from collections.abc import Iterable, Sequence

from experiments.links.hosts import bits_per_second
from experiments.measured.network_numbers import Numbers, numbers_of
from experiments.measured.network_records import Record, groups, name_of, rate_of
from experiments.pages.figures import Line, draw_lines
from experiments.pages.sections import Picture, Section, Table

MEANING = (
    "Measured in processes on hosts with shaped links. Utilisation is the time of a "
    "round without communication divided by the time of the same round with it, both "
    "medians. τ is the number of local steps in a round: 1 for strategies that "
    "communicate at every step. PowerSGD's compression counts as computation. Exposed "
    "is the time that communication adds to a round, in percent of the round without "
    "it."
)


def section(records: Iterable[Record]) -> Section | None:
    """Shows each number of hosts in a separate table and figures."""
    tables, pictures = [], []
    for title, own in groups(records).items():
        own = [{**x, "mbit": bits_per_second(x["rate"]) / 1e6} for x in own]
        tables.append(_table(f"Utilisation: {title}", own))
        pictures += _pictures(own)
    return Section("Network", MEANING, tables, pictures) if tables else None


def _table(title: str, records: Sequence[Record]) -> Table:
    """Makes a row for every strategy and sync period, a column for every bandwidth."""
    rates = _rates(records)
    cells = {
        (x["strategy"], x["sync_period"], x["rate"]): numbers_of(x["samples"])
        for x in records
    }
    rows = [
        [
            name_of(strategy),
            f"{tau}",
            *(_utilisation(cells.get((strategy, tau, rate))) for rate in rates),
        ]
        for strategy, tau in _by_strategy(records)
    ]
    return Table(["Strategy", "τ", *map(rate_of, rates)], rows, title)


def _pictures(records: Sequence[Record]) -> list[Picture]:
    """Draws utilisation for every sync period, exposed time for every bandwidth."""
    looks = {
        label: i
        for i, label in enumerate(dict.fromkeys(x["strategy"] for x in records))
    }
    host = f"{records[0]['num_hosts']} hosts"

    def lines(own: Sequence[Record], x: str, y: str) -> dict[str, Line]:
        found = {}
        for label in dict.fromkeys(record["strategy"] for record in own):
            points = sorted(
                (record[x], getattr(numbers_of(record["samples"]), y))
                for record in own
                if record["strategy"] == label
            )
            across, values = zip(*points, strict=True)
            found[name_of(label)] = Line(across, values, looks[label], marked=True)
        return found

    pictures = []
    for tau in sorted({x["sync_period"] for x in records}):
        own = [x for x in records if x["sync_period"] == tau]
        figure = draw_lines(
            lines(own, "mbit", "utilisation"), "Mbit/s", "utilisation", log_x=True
        )
        pictures.append(Picture(f"{host}, τ = {tau}", figure))
    for rate in _rates(records):
        own = [x for x in records if x["rate"] == rate]
        figure = draw_lines(
            lines(own, "sync_period", "exposed_percent"),
            "sync period",
            "exposed, % of local steps",
            log=True,
            log_x=True,
        )
        note = "A round without exposed communication has no point."
        pictures.append(Picture(f"{host}, {rate_of(rate)}", figure, note))
    return pictures


def _rates(records: Iterable[Record]) -> list[str]:
    return sorted({x["rate"] for x in records}, key=bits_per_second)


def _by_strategy(records: Iterable[Record]) -> list[tuple[str, int]]:
    found = dict.fromkeys((x["strategy"], x["sync_period"]) for x in records)
    labels = list(dict.fromkeys(label for label, _ in found))
    return sorted(found, key=lambda x: (labels.index(x[0]), x[1]))


def _utilisation(numbers: Numbers | None) -> str:
    return "—" if numbers is None else f"{numbers.utilisation:.0%}"
