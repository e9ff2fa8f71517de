"""Question: does a run that is killed again and again come to another end?

Run:     python -m experiments.kill_and_resume --times 50
Cost:    5 minutes (2 CPU cores, two of them side by side)
Answer:  no: with seeds 0 and 1 together 100 kills, 41 of them while a checkpoint was
         written, and 24 runs that came to their end, all without a difference

A run is started, killed with SIGKILL at an instant that chance chooses, resumed, killed
again, until it comes to its end; then it is compared with a run that nobody disturbed:
the state in the last checkpoint bit for bit, all records but for times, and which
checkpoints are kept. Then another run begins. One kill in five falls while a process
starts, the others soon after it has begun to write. Exits with status 1 if anything
differs, if records have half a line or a round twice, or if a run does not go on.
"""

import collections
import pathlib
import random
import sys
import tempfile
import time
from typing import NamedTuple

from rich.console import Console

from experiments.cli.options import command_parser, count, use_cpu_devices
from experiments.cli.table import make_table
from experiments.robustness.child_run import ChildRun, names_in
from experiments.robustness.same_run import (
    End,
    bad_lines,
    differences,
    end_of,
)

NUM_WORKERS = 2
# Records and checkpoints of other rounds, so that each falls between two of the other.
OPTIONS = {"num-workers": NUM_WORKERS, "num-rounds": 60, "save-every": 2}
OPTIONS |= {"evaluate-every": 5, "width": 4, "batch-size": 4, "dropout": 0.1}
EARLY = 0.2  # of the kills: while a process starts
REACH = 0.25  # of a run: how long at most a process is left to write


class Times(NamedTuple):
    """Seconds of a run that nobody disturbs."""

    start: float  # until its first checkpoint is begun; half of it is compilation
    rest: float  # from there to the end


def whole_run(out: pathlib.Path, environment: dict[str, str]) -> Times:
    """Trains to the end, from wherever the run is."""
    began = time.monotonic()
    child = ChildRun(out, OPTIONS, environment)
    child.wait_until_writing()
    wrote = time.monotonic()
    child.wait()
    child.kill()
    return Times(wrote - began, time.monotonic() - wrote)


class Kills:
    """Kills runs, and counts what comes of it."""

    def __init__(self, directory: pathlib.Path, seed: int) -> None:
        """Trains once without a kill."""
        self.directory, self.chance = directory, random.Random(seed)
        # Starting is most of what a kill costs, and half of that is compilation. What
        # the first run compiled is read by all others; they write nothing, since one
        # that is killed meanwhile would leave half a file to them.
        self.environment = {
            "JAX_COMPILATION_CACHE_DIR": str(directory / "cache"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }
        self.times = whole_run(directory / "whole", self.environment)
        self.environment["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "1e9"
        self.whole = end_of(directory / "whole")
        self.phases: collections.Counter[str] = collections.Counter()
        self.num_runs, self.num_resumes, self.num_damaged = 0, 0, 0
        self.problems: list[str] = []

    def kill(self) -> None:
        """Kills the run that is under way, once; one that ends before is compared."""
        while True:
            out = self.directory / str(self.num_runs)
            child = ChildRun(out, OPTIONS, self.environment)
            self.num_resumes += bool(child.before)
            if self.chance.random() < EARLY:
                child.wait(self.chance.uniform(0, self.times.start / 2))
            else:
                child.wait_until_writing()
                child.wait(self.chance.uniform(0, REACH * self.times.rest))
            if child.kill():
                self.phases[child.phase()] += 1
                self.problems += bad_lines(out)
                return
            self._compare(out)

    def finish(self) -> None:
        """Lets the run that is under way come to its end."""
        out = self.directory / str(self.num_runs)
        if out.exists():
            self.num_resumes += bool(names_in(out))
            whole_run(out, self.environment)
            self._compare(out)

    def _compare(self, out: pathlib.Path) -> None:
        self.problems += bad_lines(out)
        end: End = end_of(out)
        self.num_damaged += sum(name.endswith(".damaged") for name in names_in(out))
        self.problems += [f"{out.name}: {x}" for x in differences(self.whole, end)]
        self.num_runs += 1


def main() -> None:
    parser = command_parser(__doc__)
    add = parser.add_argument
    add("--times", type=count, default=100, help="number of kills; %(default)s")
    add("--seed", type=int, default=0, help="random seed; %(default)s")
    args = parser.parse_args()
    use_cpu_devices(NUM_WORKERS)
    console, began = Console(), time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        with console.status("runs without a kill"):
            kills = Kills(pathlib.Path(directory), args.seed)
        for number in range(args.times):
            with console.status(f"kill {number + 1} of {args.times}"):
                kills.kill()
        with console.status("the last run comes to its end"):
            kills.finish()
    rows = [[phase, str(number)] for phase, number in kills.phases.most_common()]
    console.print(make_table(["Killed", "times"], rows))
    console.print(
        f"{kills.num_resumes} resumes; {kills.num_runs} runs came to their end, with "
        f"{len(kills.problems)} differences and {kills.num_damaged} damaged "
        f"checkpoints; {time.monotonic() - began:.0f} s",
        highlight=False,
        soft_wrap=True,
    )
    sys.exit("\n".join(kills.problems) if kills.problems else 0)


if __name__ == "__main__":
    main()
