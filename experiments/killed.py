"""Question: what happens to a run when one of its processes is killed?

Run:     python -m experiments.killed --times 20
Cost:    6 minutes (2 CPU cores)
Answer:  all others end by themselves, within 7 seconds with --peer-timeout 5, and name
         the process that is gone. If it is killed while processes are joining, this is
         noticed when the time to join is over; if all had met by then, JAX reports
         that some process is missing, but not which. None hangs or is left behind.

Each time, four processes train without `experiments.launch`, which would end them
itself. A random one is killed at a random time: while they start, train or end.
"""

import contextlib
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import time

from rich.console import Console

from experiments.cli.options import command_parser, count
from experiments.cli.table import make_table
from experiments.launch import end_all, free_coordinator, start
from experiments.processes.exit_reason import explain_exit
from olsgd_jax.training import ENVIRONMENT

NUM_PROCESSES = 4
JOIN_TIMEOUT, PEER_TIMEOUT = 20, 5
OPTIONS = {
    "join-timeout": JOIN_TIMEOUT,
    "peer-timeout": PEER_TIMEOUT,
    "width": 4,
    "batch-size": 4,
    "num-rounds": 400,
    "evaluate-every": 40,
}
DEADLINE = JOIN_TIMEOUT + PEER_TIMEOUT + 35  # seconds from the kill to the end of all
SAID = re.compile(r"^olsgd_jax: .*|^train.py: error: .*", re.MULTILINE)


def command(out: str) -> list[str]:
    options = [f"--{name}={value}" for name, value in OPTIONS.items()]
    return [sys.executable, "-m", "experiments.train", f"--out={out}", *options]


def kill_one(victim: int, instant: float) -> dict[str, str]:
    """Kills a process of a run after some seconds; describes how the others ended.

    Raises:
      AssertionError: if one hangs, fails silently, or leaves processes behind.
    """
    coordinator = free_coordinator()
    with tempfile.TemporaryDirectory() as out:
        processes = start(command(out), NUM_PROCESSES, coordinator)
        try:
            time.sleep(instant)
            was_over = processes[victim].poll() is not None
            processes[victim].kill()
            killed = time.monotonic()
            written = [_rest(process, killed + DEADLINE) for process in processes]
            seconds = time.monotonic() - killed
        finally:
            end_all(processes)
    left = left_behind(coordinator)
    assert not left, f"processes {left} were left behind"
    others = [i for i in range(NUM_PROCESSES) if i != victim]
    said = [_said(written[i]) for i in others if processes[i].returncode]
    assert all(said), f"one failed silently: {written}"
    named = re.compile(rf"process (\d+ and )*{victim}\b|missing: (\d+, )*{victim}\b")
    return {
        "victim": str(victim),
        "killed after": f"{instant:.1f} s" + (", too late" if was_over else ""),
        "others failed": str(len(said)),
        "and named it": str(sum(bool(named.search(text)) for text in said)),
        "last one ended": f"{seconds:.1f} s later",
        "said": said[0] if said else "",
    }


def _said(errors: str) -> str:
    """Finds the last message of a process, or of JAX."""
    return explain_exit(errors) or "".join(SAID.findall(errors)[-1:])


def _rest(process: subprocess.Popen, deadline: float) -> str:
    try:
        _, errors = process.communicate(timeout=deadline - time.monotonic())
    except subprocess.TimeoutExpired as error:
        raise AssertionError(f"{process.pid} hangs after {DEADLINE} s") from error
    return errors.decode(errors="replace")


def left_behind(coordinator: str) -> list[str]:
    """Lists all processes that a run with this coordinator has left."""
    mark = f"{ENVIRONMENT['coordinator']}={coordinator}\0".encode()
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has just ended
            if mark in (path / "environ").read_bytes():
                found.append(path.name)
    return found


def whole_run() -> float:
    """Times a run in which no process is killed."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as out:
        processes = start(command(out), NUM_PROCESSES, free_coordinator())
        for process in processes:
            process.communicate()
    return time.monotonic() - begun


def main() -> None:
    parser = command_parser(__doc__)
    add = parser.add_argument
    add("--times", type=count, default=20, help="number of runs; %(default)s")
    add("--seed", type=int, default=0, help="random seed; %(default)s")
    args = parser.parse_args()
    console, chance, rows = Console(), random.Random(args.seed), []
    with console.status("a whole run"):
        seconds = whole_run()
    for number in range(args.times):
        victim, instant = chance.randrange(NUM_PROCESSES), chance.uniform(0, seconds)
        with console.status(f"{number + 1} of {args.times}"):
            rows.append(kill_one(victim, instant))
    *heads, _ = rows[0]
    title = f"An undisturbed run takes {seconds:.0f} s"
    cells = ([row[head] for head in heads] for row in rows)
    console.print(make_table(heads, cells, title))
    for text in sorted({row["said"] for row in rows} - {""}):
        console.print(text, markup=False, highlight=False)


if __name__ == "__main__":
    main()
