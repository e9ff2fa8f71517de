"""Question: does a run that is killed again and again end differently?

Run:     python -m experiments.kill_and_resume --times 50
Cost:    5 minutes (2 CPU cores, two of them side by side)
Answer:  no: seeds 0 and 1 together gave 100 kills, 41 of them while a checkpoint was
         written, and 24 finished runs, all without a difference

A run is started, killed with SIGKILL at a random instant, resumed and killed again
until it finishes. Then it is compared with an undisturbed run: the state in the last
checkpoint bit for bit, all records except for times, and which checkpoints are kept.
Then another run starts. One kill in five hits a process that is starting, the others
one that has just started to write. Exits with status 1 if anything differs, if records
have half a line or a round twice, or if a run does not continue.
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
from experiments.robustness.same_run import End, bad_lines, differences, end_of

NUM_WORKERS = 2
# Records and checkpoints are of different rounds, so that each falls between others.
OPTIONS = {"num-workers": NUM_WORKERS, "num-rounds": 60, "save-every": 2}
OPTIONS |= {"evaluate-every": 5, "width": 4, "batch-size": 4, "dropout": 0.1}
EARLY = 0.2  # fraction of the kills that hit a process that is starting
REACH = 0.25  # fraction of a run for which a process may write, at most


class Times(NamedTuple):
    """Seconds of an undisturbed run."""

    start: float  # until it begins its first checkpoint; half of it is compilation
    rest: float  # from there to the end


def whole_run(out: pathlib.Path, environment: dict[str, str]) -> Times:
    """Trains until the run finishes, from wherever it is."""
    began = time.monotonic()
    child = ChildRun(out, OPTIONS, environment)
    child.wait_until_writing()
    wrote = time.monotonic()
    child.wait()
    child.kill()
    return Times(wrote - began, time.monotonic() - wrote)


class Kills:
    """Kills runs, and counts the consequences."""

    def __init__(self, directory: pathlib.Path, seed: int) -> None:
        """Trains once without a kill."""
        self.directory, self.chance = directory, random.Random(seed)
        # Most of a kill's cost is the next start, and half of that is compilation. All
        # runs read what the first one compiled, but write nothing: a run killed while
        # writing would leave half a file to the others.
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
        """Kills the current run once; a run that finishes first is compared."""
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
        """Lets the current run finish."""
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
        with console.status("finishing the last run"):
            kills.finish()
    rows = [[phase, str(number)] for phase, number in kills.phases.most_common()]
    console.print(make_table(["Killed", "times"], rows))
    console.print(
        f"{kills.num_resumes} resumes; {kills.num_runs} runs finished, with "
        f"{len(kills.problems)} differences and {kills.num_damaged} damaged "
        f"checkpoints; {time.monotonic() - began:.0f} s",
        highlight=False,
        soft_wrap=True,
    )
    sys.exit("\n".join(kills.problems) if kills.problems else 0)


if __name__ == "__main__":
    main()
