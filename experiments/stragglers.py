"""Question: what do stragglers cost, and does the model predict it?

Run:     python -m experiments.stragglers --out results/stragglers
Cost:    15 minutes (2 CPU cores)
Answer:  time per round and idle time of blocking and overlapped strategies, measured
         and modelled: stragglers.md in --out, and `report`

Processes run on hosts with shaped links (needs root). Their local steps sleep for
random times, drawn beforehand, then compute a little. In the same processes, all
strategies alternate, with communication and without.
"""

import argparse
import pathlib

from rich.console import Console
from rich.markdown import Markdown

from experiments.cli.options import command_parser
from experiments.links.hosts import bits_per_second
from experiments.links.slowdowns import SLOWDOWNS
from experiments.measured import straggler_tables
from experiments.measured.measure_all import measure_all
from experiments.measured.straggler_rounds import Question, measure
from experiments.pages.markdown import to_markdown
from experiments.processes.host_processes import answer, ask_all, join, parse_or_measure
from olsgd_jax.training import (
    check_choice,
    check_count,
    end_together,
    named_strategy,
    writing,
)

STRATEGIES = ("sync_sgd", "local_sgd", "cocod_sgd", "overlap_local_sgd")


@end_together()
def run_process(*question) -> None:
    """Takes part in one measurement, as `ask_all` starts it."""
    join()
    answer(measure(Question(*question)))


def run_hosts(question: Question) -> dict:
    """Measures one slowdown on new hosts."""
    hosts = question.num_hosts, question.rate
    return {"samples": ask_all("experiments.stragglers", question, *hosts)}


def main() -> None:
    parser = command_parser(__doc__)
    add = parser.add_argument
    add("--hosts", type=int, default=4, choices=(2, 3, 4))
    add("--rate", default="200mbit", help="rate of every link, each way; %(default)s")
    add("--slowdowns", nargs="+", default=tuple(SLOWDOWNS), help=", ".join(SLOWDOWNS))
    add("--strategies", nargs="+", default=STRATEGIES, help="name, or name:stream")
    add(
        "--sync-period",
        type=int,
        default=8,
        help="local steps in a round, τ; %(default)s",
    )
    add("--num-rounds", type=int, default=25, help="consecutive rounds; %(default)s")
    add("--repetitions", type=int, default=3, help="series of rounds; %(default)s")
    add(
        "--unit",
        type=float,
        default=0.02,
        help="seconds that a local step sleeps; %(default)s",
    )
    add("--seed", type=int, default=0, help="random seed; %(default)s")
    add("--width", type=int, default=256, help="width of the model; %(default)s")
    add("--depth", type=int, default=4, help="depth of the model; %(default)s")
    add(
        "--out",
        type=pathlib.Path,
        default="out/stragglers",
        help="directory; %(default)s",
    )
    args = parse_or_measure(parser, run_process)
    try:
        questions = list_questions(args)
        with writing(args.out):
            args.out.mkdir(parents=True, exist_ok=True)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    console = Console(width=max(Console().width, 120))
    file = args.out / straggler_tables.STRAGGLERS
    records = measure_all(questions, run_hosts, file, console)
    text = to_markdown(filter(None, [straggler_tables.section(records)]))
    file.with_suffix(".md").write_text(text, encoding="utf-8")
    console.print(Markdown(text))


def list_questions(args: argparse.Namespace) -> list[Question]:
    """Makes a question for every slowdown, and checks all options."""
    bits_per_second(args.rate)
    for name in ("sync_period", "num_rounds", "repetitions", "width", "depth"):
        check_count(name, getattr(args, name))
    for label in args.strategies:
        named_strategy(label, args.hosts)
    questions = []
    for slowdown in args.slowdowns:
        check_choice("slowdown", slowdown, tuple(SLOWDOWNS))
        own = {**vars(args), "num_hosts": args.hosts, "slowdown": slowdown}
        questions.append(Question(*(own[field] for field in Question._fields)))
    return questions


if __name__ == "__main__":
    main()
