"""Question: how much time does each strategy lose to the network?

Run:     python -m experiments.network --out results/network
Cost:    hours for all 200 cases, most of it at 10 Mbit/s (2 CPU cores); if stopped,
         it continues
Answer:  utilisation, exposed communication and bytes on the wire of every strategy at
         every bandwidth and sync period: network.md in --out, and `report`

Two to four processes run on as many hosts with shaped links (needs root). In the same
processes, rounds that communicate alternate with rounds of the same work that do not:
the difference is the exposed communication. The means alone are timed too. Every
process is pinned to one core; if hosts outnumber cores, some share one and take longer
for their local steps. Strategies that communicate at every step have rounds of one
step.
"""

import pathlib
from collections.abc import Sequence

from rich.console import Console
from rich.markdown import Markdown

from experiments.cli.options import command_parser
from experiments.measured import case_tables, model_check, network_tables
from experiments.measured.measure_all import measure_all
from experiments.measured.network_case import list_cases, run_case
from experiments.measured.network_numbers import numbers_of
from experiments.measured.network_records import NETWORK
from experiments.measured.network_rounds import measure, sizes
from experiments.measured.network_work import DEPTH, WIDTH, Work
from experiments.pages.markdown import to_markdown
from experiments.processes.host_processes import answer, join, parse_or_measure
from olsgd_jax.training import end_together, writing

HOSTS = (2, 4)
RATES = ("10mbit", "100mbit", "200mbit", "1gbit")
STRATEGIES = (
    "sync_sgd", "sync_sgd:low_rank:1", "sync_sgd:low_rank:2", "sync_sgd:low_rank:4",
    "sync_sgd:low_rank:8", "local_sgd", "easgd", "cocod_sgd", "overlap_local_sgd",
    "overlap_local_sgd:stream",
)  # fmt: skip
SYNC_PERIODS = (1, 4, 16, 64)


@end_together()
def run_process(work: Sequence, repetitions: int) -> None:
    """Takes part in one measurement, as `ask_all` starts it."""
    join()
    samples = measure(Work(*work), repetitions)
    answer({"samples": samples, "sizes": sizes(Work(*work))})


def say(record: dict) -> str:
    """Describes the result of a case in a line."""
    numbers = numbers_of(record["samples"])
    return (
        f"{1e3 * numbers.round:,.0f} ms a round, utilisation {numbers.utilisation:.0%}"
    )


def main() -> None:
    parser = command_parser(__doc__)
    add = parser.add_argument
    add(
        "--hosts",
        type=int,
        nargs="+",
        default=HOSTS,
        choices=(2, 3, 4),
        help=f"number of hosts; {' '.join(map(str, HOSTS))}",
    )
    add(
        "--rates",
        nargs="+",
        default=RATES,
        help=f"rates of the links, each way; {' '.join(RATES)}",
    )
    add(
        "--strategies",
        nargs="+",
        default=STRATEGIES,
        help="such as local_sgd, sync_sgd:low_rank:8 (PowerSGD, rank 8) or "
        "cocod_sgd:stream; all ten",
    )
    add(
        "--sync-periods",
        type=int,
        nargs="+",
        default=SYNC_PERIODS,
        help=f"local steps in a round, τ; {' '.join(map(str, SYNC_PERIODS))}",
    )
    add(
        "--repetitions",
        type=int,
        default=10,
        help="rounds of each kind, 2 or more; %(default)s",
    )
    add("--width", type=int, default=WIDTH, help="width of the model; %(default)s")
    add("--depth", type=int, default=DEPTH, help="depth of the model; %(default)s")
    add(
        "--out", type=pathlib.Path, default="out/network", help="directory; %(default)s"
    )
    args = parse_or_measure(parser, run_process)
    console = Console(width=max(Console().width, 120))
    options = args.repetitions, args.width, args.depth
    try:
        asked = list_cases(
            args.hosts, args.rates, args.strategies, args.sync_periods, options
        )
        with writing(args.out):
            args.out.mkdir(parents=True, exist_ok=True)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    records = measure_all(asked, run_case, args.out / NETWORK, console, say)
    sections = [
        network_tables.section(records),
        model_check.section(records, []),
        case_tables.section(records),
    ]
    text = to_markdown(filter(None, sections))
    (args.out / NETWORK).with_suffix(".md").write_text(text, encoding="utf-8")
    console.print(Markdown(text))


if __name__ == "__main__":
    main()
