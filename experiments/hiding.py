"""Question: how much of the mean's time does the host driver hide on a slow network?

Run:     python -m experiments.hiding
Cost:    10 minutes or more (2 CPU cores)
Answer:  96 to 98 % where the mean takes less than 0.8 of the local steps; where it
         takes longer than that, a round takes 1.00 to 1.03 times as long as the
         larger of the two. The table is in docs/results/network.md.

Two processes run on two hosts with a shaped link between them (needs root).
In the same processes, rounds with the mean alternate with rounds of the same work
without it: the difference is the exposed communication. The mean alone is timed too,
and modelled (`olsgd_jax.timing`) from the bytes that a host sends and the link's rate.
"""

import itertools

from rich.console import Console

from experiments.cli.options import command_parser, count
from experiments.cli.table import make_table
from experiments.links.gloo import GOODPUT
from experiments.links.hosts import bits_per_second, why_not
from experiments.measured import network_case
from experiments.measured.network_numbers import numbers_of
from experiments.measured.turns import Samples
from olsgd_jax import REDUCTIONS
from olsgd_jax.timing import Ring

CASES = (
    "200mbit:8", "200mbit:48", "100mbit:16", "100mbit:96", "50mbit:32", "50mbit:192",
)  # fmt: skip


def row(samples: Samples, rate: str) -> list[str]:
    """Formats one case as a row; HEADS are the columns."""
    numbers = numbers_of(samples)
    hidden = 1 - numbers.exposed[1] / numbers.mean
    low, middle, high = (f"{1e3 * x:.0f}" for x in numbers.exposed)
    return [
        *(f"{1e3 * x:.0f}" for x in (numbers.steps, numbers.mean, numbers.round)),
        f"{middle} ({low} to {high})",
        f"{hidden:.0%}",
        f"{numbers.of_limit:.2f}",
        f"{1e3 * numbers.cpu:.0f}",
        f"{numbers.sent / 1e6:.2f}",
        f"{1e3 * modelled_mean(numbers.sent, rate):.0f}",
    ]


def modelled_mean(sent: float, rate: str) -> float:
    """Models a mean in which each of two hosts sends so many bytes.

    Two exchanges of few messages take as long as a ring.
    """
    return Ring(GOODPUT * bits_per_second(rate) / 8).seconds(sent, num_workers=2)


HEADS = (
    "link", "sync period", "reduction", "steps, ms", "mean, ms", "round, ms",
    "exposed, ms", "hidden", "of limit", "CPU, ms", "sent, MB",
    "mean modelled, ms",
)  # fmt: skip


def run_case(
    rate: str, sync_period: int, repetitions: int, reduction: str = "exact"
) -> Samples:
    """Measures one rate and one sync period, in two processes on two hosts."""
    label = f"overlap_local_sgd:{reduction}"
    case = network_case.Case(2, rate, label, sync_period, repetitions)
    return network_case.run_case(case)["samples"]


def main() -> None:
    parser = command_parser(__doc__)
    add = parser.add_argument
    add("cases", nargs="*", default=CASES, help="rate:sync_period, as in 200mbit:16")
    add(
        "--repetitions", type=count, default=30, help="rounds of each kind; %(default)s"
    )
    add(
        "--reductions",
        nargs="+",
        default=["exact"],
        choices=tuple(REDUCTIONS),
        help="how messages become a mean; exact",
    )
    args = parser.parse_args()
    if reason := why_not():
        parser.error(reason)
    console = Console(width=max(Console().width, 120))
    rows = []
    for case, reduction in itertools.product(args.cases, args.reductions):
        rate, _, sync_period = case.partition(":")
        shown = f"{case}, {reduction}: {args.repetitions} rounds of each kind"
        with console.status(shown):
            samples = run_case(rate, int(sync_period), args.repetitions, reduction)
        rows.append([rate, sync_period, reduction, *row(samples, rate)])
    title = "Two CPU processes, medians (and quartiles)"
    console.print(make_table(HEADS, rows, title))


if __name__ == "__main__":
    main()
