"""Question: when do two workers compute and send in a round?

Run:     python -m experiments.timeline --out results/cpu
Cost:    20 seconds (2 CPU cores)
Answer:  Local SGD computes, then sends: 396 ms of local steps and 359 ms of mean make
         rounds of 741 to 804 ms. Overlap Local-SGD does both at once: 396 ms and 364 ms
         in parallel make rounds of 397 to 513 ms (medians and ranges of 4 rounds of
         both workers; 200 Mbit/s, τ = 32; 2 CPU cores, an AMD EPYC). The times are
         written to timeline.json in --out; `report` draws them.

Two processes run on two hosts with a shaped link between them (needs root). The host
driver runs the programs of a round: with Overlap Local-SGD, the mean of the models at
its start is sent bucket by bucket on a second thread, during the local steps; Local SGD
runs one program after the other. Both processes read the same clock. A mean is timed
from its call to its result, so the time of a worker that arrives early includes waiting
for the other.
"""

import json
import pathlib

from experiments.cli.options import command_parser, count
from experiments.links.hosts import bits_per_second
from experiments.measured.measure_all import conditions
from experiments.measured.network_work import DEPTH, WIDTH, Work
from experiments.measured.timed_rounds import measure, together
from experiments.measured.timeline_figure import TIMELINE
from experiments.processes.host_processes import answer, ask_all, join, parse_or_measure
from olsgd_jax.training import end_together, writing

STRATEGIES = ("local_sgd", "overlap_local_sgd")


def run_hosts(rate: str, sync_period: int, num_rounds: int) -> dict:
    """Measures every strategy, in two processes on two hosts.

    Returns:
      The setting and the spans, in seconds from the start of the first round.
    """
    question = sync_period, num_rounds
    workers = ask_all("experiments.timeline", question, num_hosts=2, rate=rate)
    return {
        "link": rate,
        "sync_period": sync_period,
        "num_parameters": DEPTH * WIDTH**2,
        **conditions(),
        "spans": {name: together([x[name] for x in workers]) for name in STRATEGIES},
    }


@end_together()
def run_process(sync_period: int, num_rounds: int) -> None:
    """Takes part in one measurement, as `ask_all` starts it."""
    join()
    answer({x: measure(Work(x, sync_period), num_rounds) for x in STRATEGIES})


def main() -> None:
    parser = command_parser(__doc__)
    add = parser.add_argument
    add(
        "--out",
        type=pathlib.Path,
        default=pathlib.Path("out"),
        help="directory; %(default)s",
    )
    add("--link", default="200mbit", help="rate of the link, each way; %(default)s")
    add(
        "--sync-period",
        type=count,
        default=32,
        help="local steps in a round, τ; %(default)s",
    )
    add("--rounds", type=count, default=4, help="rounds to record; %(default)s")
    args = parse_or_measure(parser, run_process)
    file = args.out / TIMELINE
    try:
        bits_per_second(args.link)
        with writing(file):
            args.out.mkdir(parents=True, exist_ok=True)
        measured = run_hosts(args.link, args.sync_period, args.rounds)
        with writing(file):
            file.write_text(json.dumps(measured) + "\n", encoding="utf-8")
    except (ValueError, OSError) as error:
        parser.error(str(error))
    print(file)


if __name__ == "__main__":
    main()
