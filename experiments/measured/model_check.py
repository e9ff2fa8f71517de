"""The model of time compared with measurements, point by point."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import jax

from experiments.links.gloo import GOODPUT
from experiments.links.hosts import bits_per_second
from experiments.measured.network_numbers import numbers_of
from experiments.measured.network_records import Record, groups, name_of
from experiments.measured.network_work import Work, sent_trees, strategy_of
from experiments.measured.straggler_numbers import all_numbers
from experiments.pages.sections import Section, Table
from olsgd_jax import sync_sgd
from olsgd_jax.timing import Constant, Ring, Setting, round_time

CLOSE = 0.1  # relative error of a model that counts as right
HEADS = ("Strategy", "Measured as", "Points", "Within 10%", "Model over measured")
MEANING = (
    "The modelled time of a round (olsgd_jax.timing), divided by the measured one. "
    "For a network the model gets the rate of the links less the headers of the "
    "frames, the bytes and the number of arrays that are sent, the time of the "
    "quickest mean of one number (paid once per array), the time of a round without "
    "communication, and the CPU time that carrying a delayed mean takes from the cores "
    "that run the local steps. For stragglers it gets the slowdown, and the times of a "
    "step and of a mean alone. The last column gives the smallest, median and largest "
    "ratio."
)


class Point(NamedTuple):
    """One round, in seconds."""

    label: str  # of the strategy
    source: str
    measured: float
    modelled: float

    @property
    def ratio(self) -> float:
        """Modelled time divided by the measured one."""
        return self.modelled / self.measured


def section(networks: Iterable[Record], stragglers: Iterable[Record]) -> Section | None:
    """Shows how close the model is for each strategy, and for all together."""
    points = [
        *(network_point(x) for own in groups(networks).values() for x in own),
        *(
            Point(label, "stragglers", numbers.round, numbers.modelled.seconds)
            for _, label, numbers in all_numbers(stragglers)
        ),
    ]
    if not points:
        return None
    rows = [
        _row(name_of(label), source, [x for x in points if x[:2] == (label, source)])
        for label, source in dict.fromkeys(x[:2] for x in points)
    ]
    rows.append(_row("All", "", points))
    return Section("The model of time", MEANING, [Table(HEADS, rows)])


def network_point(record: Record) -> Point:
    """Models a case of `network`."""
    numbers = numbers_of(record["samples"])
    sync_period, num_hosts = record["sync_period"], record["num_hosts"]
    work = Work(record["strategy"], sync_period, record["width"], record["depth"])
    strategy, stream = strategy_of(work, num_hosts)
    if stream:
        # A streamed round is one program, inside which a CPU overlaps nothing: it takes
        # as long as if it averaged at every step.
        strategy = sync_sgd()
    # The cores that carry a delayed mean also run the local steps.
    per_core = -(-num_hosts // record["num_cores"])
    carried = per_core * max(numbers.cpu, 0) if strategy.mean_of == "start" else 0
    means = sync_period if strategy.mean_of == "gradients" else 1
    sent = jax.eval_shape(lambda: sent_trees(work, num_hosts)[0])
    arrays = len(jax.tree.leaves(sent)) / means
    messages = 2 * (num_hosts - 1)  # of a ring
    setting = Setting(
        strategy,
        sync_period,
        record["payload_bytes"],
        num_hosts,
        Constant((numbers.steps + carried) / sync_period),
        Ring(
            GOODPUT * bits_per_second(record["rate"]) / 8,
            arrays * numbers.one / messages,
        ),
    )
    modelled = round_time(setting).seconds
    return Point(record["strategy"], "network", numbers.round, modelled)


def _row(name: str, source: str, points: Sequence[Point]) -> list[str]:
    ratios = sorted(x.ratio for x in points)
    close = sum(abs(x - 1) <= CLOSE for x in ratios)
    spread = ratios[0], ratios[len(ratios) // 2], ratios[-1]
    return [
        name,
        source,
        f"{len(points)}",
        f"{close} ({close / len(points):.0%})",
        " / ".join(f"{x:.2f}" for x in spread),
    ]
