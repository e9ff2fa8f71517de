"""Question: what does a checkpoint a minute cost?

Run:     python -m experiments.checkpoint_cost
Cost:    2 minutes (2 CPU cores), 4 with --repetitions 40
Answer:  0.77 % (quartiles 0.65 to 0.82 %) of the preset `cpu`, whose rounds take
         149 ms, and 0.58 % of its CPU time, in 12 pairs; 0.08 % of rounds of 0.8 ms

Blocks of 10 rounds alternate within one run: one starts with a checkpoint and ends when
it is written; the other has none. The first takes longer by the time that a checkpoint
costs; its cost is that time as a fraction of a minute. Quartiles are over all pairs of
blocks. Rounds continue while a checkpoint is written, but share their cores with the
copying, checking (`save`) and writing. CPU time is that of all threads, which other
work on the machine hardly changes. On CIFAR-10 the network and workers are those of the
preset `cpu`. Exits with status 1 if a cost is above 3 %.
"""

import dataclasses
import itertools
import statistics
import sys
import tempfile
import time
from typing import NamedTuple

from rich.console import Console

from experiments.cli.options import command_parser, count, use_cpu_devices
from experiments.cli.table import make_table
from experiments.paper.presets import preset
from olsgd_jax.training import Checkpoints, Config, Due, train
from olsgd_jax.types import ArrayTree

MINUTE = 60.0  # seconds between checkpoints
MOST = 0.03  # of the time, that checkpoints may cost
BLOCK = 10  # rounds
NUM_WARM = 2  # pairs of blocks that are not counted
MAX_WORKERS = 16


class TimedCheckpoints(Checkpoints):
    """Checkpoints that record how long rounds stand still for each."""

    def __init__(self, directory: str) -> None:
        """Opens the directory."""
        super().__init__(directory, keep=2)
        self.seconds: list[float] = []

    def save(
        self,
        number: int,
        tree: ArrayTree,
        facts: dict | None = None,
        score: float | None = None,
    ) -> None:
        """Saves, and records how long that took."""
        began = time.perf_counter()
        super().save(number, tree, facts, score)
        self.seconds.append(time.perf_counter() - began)


class EverySecondBlock(Due):
    """Starts every second block with a checkpoint; records when blocks start."""

    def __init__(self, checkpoints: Checkpoints) -> None:
        """Starts with a block without a checkpoint, which compiles."""
        super().__init__(every=2 * BLOCK)
        self._checkpoints, self.began = checkpoints, list[float]()
        self.used = list[float]()  # CPU time until then

    def __call__(self, number: int) -> bool:
        """Tells whether a block with a checkpoint starts here."""
        if number % BLOCK == 0:
            self._checkpoints.numbers()  # waits until all is written
            self.began.append(time.perf_counter())
            self.used.append(time.process_time())
        return super().__call__(number)


class Cost(NamedTuple):
    """What was measured, in seconds."""

    without: list[float]  # blocks without a checkpoint
    extra: list[float]  # how much longer the blocks with one took
    still: list[float]  # how long rounds stood still, for each checkpoint
    cpu_without: list[float]  # CPU time of blocks without a checkpoint
    cpu_extra: list[float]  # how much more the blocks with one took

    def fractions(self) -> list[float]:
        """Computes the cost of every pair, as a fraction of a minute."""
        return [x / MINUTE for x in self.extra]

    def cpu_fraction(self) -> float:
        """Computes the cost in CPU time, relative to what rounds use in a minute."""
        used = statistics.median(self.cpu_without) / statistics.median(self.without)
        return statistics.median(self.cpu_extra) / (MINUTE * used)


def measure(config: Config) -> Cost:
    """Trains, with a checkpoint in every second block."""
    with tempfile.TemporaryDirectory() as directory:
        checkpoints = TimedCheckpoints(directory)
        due = EverySecondBlock(checkpoints)
        with checkpoints:
            for _ in train(config, checkpoints=checkpoints, due=due):
                pass
    without, extra = _pairs(due.began)
    still = checkpoints.seconds[NUM_WARM : NUM_WARM + len(extra)]
    return Cost(without, extra, still, *_pairs(due.used))


def _pairs(began: list[float]) -> tuple[list[float], list[float]]:
    """Computes the time of blocks without a checkpoint, and what one adds."""
    # The first checkpoint comes with the second block, so the first is left out.
    spent = [after - before for before, after in itertools.pairwise(began)]
    having, without = spent[1::2][NUM_WARM:], spent[2::2][NUM_WARM:]
    return without, [x - y for x, y in zip(having, without, strict=True)]


def configs(repetitions: int, data_dir: str | None) -> dict[str, Config]:
    """Names the runs; digits take a hundredth of the time, so they run for longer."""

    def lasting(pairs: int, config: Config) -> Config:
        # One more: after the last round, no checkpoint is asked for.
        number = BLOCK * (2 * (pairs + NUM_WARM) + 2) + 1
        return dataclasses.replace(config, num_rounds=number, evaluate_every=number)

    return {
        "digits, mlp, 4 workers": lasting(10 * repetitions, Config()),
        "CIFAR-10, resnet8, 16 workers": lasting(
            repetitions, preset("cpu", data_dir=data_dir)
        ),
    }


HEADS = ("Run", "round", "a checkpoint", "`save` alone", "one a minute", "its CPU time")


def row(name: str, cost: Cost) -> list[str]:
    """Formats the measurements of one run; HEADS are the columns."""
    low, middle, high = statistics.quantiles(cost.fractions(), n=4)
    per_round = statistics.median(cost.without) / BLOCK
    extra, still = statistics.median(cost.extra), statistics.median(cost.still)
    return [
        name,
        *(f"{1e3 * x:.1f} ms" for x in (per_round, extra, still)),
        f"{middle:.2%} ({low:.2%} to {high:.2%})",
        f"{1e3 * statistics.median(cost.cpu_extra):.1f} ms, {cost.cpu_fraction():.2%}",
    ]


def main() -> None:
    parser = command_parser(__doc__)
    add = parser.add_argument
    add("--repetitions", type=count, default=12, help="pairs of blocks; %(default)s")
    add("--data-dir", help="directory of CIFAR-10; default: TFDS_DATA_DIR")
    args = parser.parse_args()
    use_cpu_devices(MAX_WORKERS)
    console = Console()
    rows, costs = [], []
    try:
        for name, config in configs(args.repetitions, args.data_dir).items():
            with console.status(name):
                cost = measure(config)
            costs.append(statistics.median(cost.fractions()))
            rows.append(row(name, cost))
    except (ValueError, OSError) as error:  # of the data
        parser.error(str(error))
    console.print(make_table(HEADS, rows))
    sys.exit(f"more than {MOST:.0%}" if max(costs) > MOST else 0)


if __name__ == "__main__":
    main()
