"""Question: does a long run need more and more memory, threads, files or programs?

Run:     python -m experiments.soak --rounds 20000
Cost:    half a minute (2 CPU cores)
Answer:  hardly: from round 1,000 to 20,000 memory grows from 494 to 499 MB (1.0 %),
         with 280 checkpoints in between; threads, files and programs do not grow

Two workers train a network of a few hundred parameters, with checkpoints at irregular
places between the records. After the first thousand rounds, memory may grow by 5 %, the
numbers of threads and open files may not grow, and nothing more may be compiled. Exits
with status 1 otherwise.
"""

import os
import pathlib
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
from rich.console import Console

from experiments.cli.options import command_parser, count, use_cpu_devices
from olsgd_jax.training import Checkpoints, Config, Due, train

MEMORY_GROWTH = 0.05  # largest growth that is not called a leak
SAVE_EVERY = 0.07  # of the rounds between two looks, so that saves are irregular


class Look(NamedTuple):
    """The resources of a process at some time."""

    round: int
    seconds: float  # on a clock
    memory: float  # bytes
    threads: int
    files: int
    programs: int  # compiled so far


def count_compilations() -> Callable[[], int]:
    """Counts compilations from now on."""
    events: list[str] = []

    def note(event: str, duration_secs: float, **kwargs: str | int) -> None:
        del duration_secs, kwargs
        if event.endswith("backend_compile_duration"):
            events.append(event)

    jax.monitoring.register_event_duration_secs_listener(note)
    return lambda: len(events)


def looks(config: Config, num_compiled: Callable[[], int]) -> Iterator[Look]:
    """Trains, and yields the resources of this process at every record."""
    process = pathlib.Path("/proc/self")
    due = Due(every=max(1, round(SAVE_EVERY * config.evaluate_every)))
    with (
        tempfile.TemporaryDirectory() as directory,
        Checkpoints(directory, keep=2) as checkpoints,
    ):
        for record in train(config, checkpoints=checkpoints, due=due):
            checkpoints.numbers()  # waits until none is being written
            time.sleep(0.1)  # threads that have just ended are listed for a moment
            pages = int((process / "statm").read_text().split()[1])
            yield Look(
                round=record.round,
                seconds=time.monotonic(),
                memory=pages * os.sysconf("SC_PAGE_SIZE"),
                threads=_count_threads(process / "task"),
                files=len(os.listdir(process / "fd")),
                programs=num_compiled(),
            )


def _count_threads(tasks: pathlib.Path) -> int:
    """Counts all threads except those of tensorstore's pool, which come and go."""
    names = [(task / "comm").read_text().strip() for task in tasks.iterdir()]
    return sum(name != "ts_pool_worker" for name in names)


def complaints(first: Look, last: Look) -> list[str]:
    """Lists what has grown between two looks and should not have."""
    found = []
    growth = last.memory / first.memory - 1
    if growth > MEMORY_GROWTH:
        found.append(f"memory grew by {growth:.1%}")
    for name in ("threads", "files", "programs"):
        before, after = getattr(first, name), getattr(last, name)
        if after > before:
            found.append(f"{name} went from {before} to {after}")
    return found


def main() -> None:
    parser = command_parser(__doc__)
    add = parser.add_argument
    add("--rounds", type=count, default=20_000, help="rounds in total; %(default)s")
    add("--every", type=count, default=1000, help="rounds between looks; %(default)s")
    args = parser.parse_args()
    if args.rounds < 2 * args.every:
        parser.error(f"--rounds must be at least twice --every, got {args.rounds}")
    use_cpu_devices(2)
    config = Config(
        num_workers=2,
        sync_period=1,
        batch_size=4,
        width=4,
        num_rounds=args.rounds,
        evaluate_every=args.every,
    )
    console, seen = Console(), []
    began = time.monotonic()
    for look in looks(config, count_compilations()):
        before = seen[-1] if seen else Look(0, began, 0, 0, 0, 0)
        rate = (look.round - before.round) / (look.seconds - before.seconds)
        console.print(
            f"{look.round:>7,} of {args.rounds:,} rounds  {rate:>5,.0f} per second  "
            f"{look.memory / 1e6:.1f} MB  {look.threads} threads  {look.files} files  "
            f"{look.programs} programs",
            highlight=False,
            soft_wrap=True,
        )
        seen.append(look)
    found = complaints(seen[0], seen[-1])
    sys.exit(f"Since round {args.every:,}: {'; '.join(found)}" if found else 0)


if __name__ == "__main__":
    main()
