"""Question: which contender reaches an accuracy first on a slow network?

Run:     python -m experiments.race --out results/race
Cost:    20 minutes, and as long as it takes to search for learning rates (2 CPU cores);
         if stopped, it continues
Answer:  on two hosts with a link of 200 Mbit/s, an MLP of 1.6 million parameters has
         50 % on CIFAR-10 after 3.4 s with Overlap Local-SGD and 3.7 s with CoCoD-SGD
         (τ = 192), 6.5 s with Local SGD (τ = 192), 34.5 s with PowerSGD (rank 4), 47
         to 80 s at τ = 8, and not within 404 s with synchronous SGD, which would take
         4.1 s on an infinitely fast network. The table and the figure are race.md and
         race-2-hosts-200-mbit-s.svg in --out, next to a record of every run.

A contender is a strategy, a sync period and a reduction, such as
overlap_local_sgd-tau8-int4 or sync_sgd-low_rank-rank4, which is PowerSGD. Each trains
an MLP, with one worker on every host, until the consensus has the target accuracy or
the clock reaches the limit. The clock runs during rounds only, not while models are
evaluated or programs compiled.

First, short runs on one machine choose each contender's learning rate, off the clock.
Then processes run on hosts with shaped links (needs root), each pinned to one core. For
comparison, synchronous SGD also runs on links that are not shaped.
"""

import dataclasses
import itertools
import pathlib
from collections.abc import Sequence

from rich.console import Console
from rich.markdown import Markdown

from experiments.cli.options import command_parser, count, use_cpu_devices
from experiments.links.hosts import UNSHAPED, bits_per_second
from experiments.measured import race_tables
from experiments.measured.measure_all import conditions
from experiments.measured.race_contenders import Setting, config_of, searched
from experiments.measured.race_records import RUNS, Asked, read_all, read_kept, write
from experiments.measured.race_runs import best_rate, race, search
from experiments.pages.drawing import save
from experiments.pages.markdown import to_markdown
from experiments.pages.sections import named_pictures
from experiments.processes.host_processes import answer, ask_all, join, parse_or_measure
from olsgd_jax.training import Config, end_together, writing

YARDSTICK = "sync_sgd"
"""The contender that also runs on links that are not shaped."""

CONTENDERS = (
    "sync_sgd", "sync_sgd-low_rank-rank4", "local_sgd-tau8", "local_sgd-tau192",
    "overlap_local_sgd-tau8", "overlap_local_sgd-tau192",
    "overlap_local_sgd-tau64-int8", "overlap_local_sgd-tau32-int4",
    "cocod_sgd-tau8", "cocod_sgd-tau192",
    "cocod_sgd-tau64-int8", "cocod_sgd-tau32-int4",
)  # fmt: skip
RATES = ("200mbit",)
LEARNING_RATES = (0.001, 0.0025, 0.005)


@end_together()
def run_process(config: dict, target: float, limit: float) -> None:
    """Takes part in one run, as `ask_all` starts it."""
    join()
    answer(race(Config(**config), target, limit))


def choose_rate(asked: Asked, rates: Sequence[float], out: pathlib.Path) -> dict:
    """Searches for a contender's learning rate, unless the directory has the result."""
    file = asked.search_file(out)
    asked = asked._replace(contender=searched(asked.contender))
    question = {
        "contender": asked.contender,
        "num_workers": asked.num_hosts,
        "setting": asked.setting._asdict(),
        "learning_rates": list(rates),
    }
    if kept := read_kept(file, question):
        return kept
    accuracies = search(asked.config(rates[0]), rates)
    record = {**question, "accuracies": accuracies, **conditions()}
    write(file, record)
    return record


def run_once(asked: Asked, rates: Sequence[float], out: pathlib.Path) -> dict:
    """Runs a contender on hosts, unless the directory has its record."""
    file = asked.file(out)
    if kept := read_kept(file, asked.asdict()):
        return kept
    found = choose_rate(asked, rates, out)["accuracies"]
    config = dataclasses.asdict(asked.config(best_rate(found)))
    question = config, asked.target, asked.limit
    measured, *_ = ask_all("experiments.race", question, asked.num_hosts, asked.rate)
    record = {**asked.asdict(), "config": config, "search": found, **measured}
    write(file, record)
    return record


def list_runs(
    hosts: Sequence[int],
    rates: Sequence[str],
    contenders: Sequence[str],
    setting: Setting,
    target: float,
    limit: float,
) -> list[Asked]:
    """Lists all runs; the yardstick comes first for every number of hosts."""
    for rate in rates:
        bits_per_second(rate)
    for contender in contenders:
        config_of(contender, 2, setting, 1.0)
    return [
        Asked(contender, num_hosts, rate, setting, target, limit)
        for num_hosts in hosts
        for rate, contender in [
            (UNSHAPED, YARDSTICK),
            *itertools.product(rates, contenders),
        ]
    ]


def say(record: dict) -> str:
    """Describes the result of a run in a line."""
    last = record["points"][-1]
    return f"{record['outcome']} at {last['seconds']:.0f} s, {last['accuracy']:.1%}"


def main() -> None:
    parser = command_parser(__doc__)
    add = parser.add_argument
    add(
        "--hosts",
        type=int,
        nargs="+",
        default=(2,),
        choices=(2, 3, 4),
        help="number of hosts; 2",
    )
    add(
        "--rates",
        nargs="+",
        default=RATES,
        help=f"rates of the links, each way; {' '.join(RATES)}",
    )
    add(
        "--contenders",
        nargs="+",
        default=CONTENDERS,
        help=f"such as local_sgd-tau8-int4; {' '.join(CONTENDERS)}",
    )
    add(
        "--target",
        type=float,
        default=0.5,
        help="test accuracy that ends a run; %(default)s",
    )
    add(
        "--limit",
        type=float,
        default=400,
        help="seconds on the clock after which a run is cut off; %(default)s",
    )
    add(
        "--learning-rates",
        type=float,
        nargs="+",
        default=LEARNING_RATES,
        help=f"rates to choose from; {' '.join(map(str, LEARNING_RATES))}",
    )
    add("--dataset", default="cifar10", help="a name in DATASETS; %(default)s")
    add("--width", type=count, default=512, help="width of the MLP; %(default)s")
    add("--seed", type=int, default=0, help="random seed; %(default)s")
    add(
        "--evaluate-steps",
        type=count,
        default=96,
        help="local steps from one evaluation to the next; %(default)s",
    )
    add("--out", type=pathlib.Path, default="out/race", help="directory; %(default)s")
    args = parse_or_measure(parser, run_process)
    use_cpu_devices(max(args.hosts))
    console = Console(width=max(Console().width, 120))
    setting = Setting(args.dataset, args.width, args.seed, args.evaluate_steps)
    try:
        runs = list_runs(
            args.hosts, args.rates, args.contenders, setting, args.target, args.limit
        )
        with writing(args.out):
            args.out.mkdir(parents=True, exist_ok=True)
        for asked in runs:
            with console.status(asked.name):
                record = run_once(asked, args.learning_rates, args.out)
            console.print(f"{asked.name}: {say(record)}")
    except (ValueError, OSError) as error:
        parser.error(str(error))
    section = race_tables.section(read_all(args.out, RUNS))
    images = {}
    for name, picture in named_pictures([section]):
        save(picture.figure, args.out / name)
        images[name] = f"{name}.svg"
    text = to_markdown([section], images)
    (args.out / "race.md").write_text(text, encoding="utf-8")
    console.print(Markdown(to_markdown([section])))


if __name__ == "__main__":
    main()
