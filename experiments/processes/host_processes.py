"""Processes that talk over a link: how they are started, and what they do first.

There is either one process on each of the hosts that `hosts` makes, or all of them use
the private loopback that `loopback` makes.
"""

import argparse
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import TextIO

import jax

from experiments.links.hosts import (
    INTERFACE,
    NAMES,
    address,
    hosts,
    on_signals,
    stop,
    why_not,
)
from olsgd_jax.training import FOLLOWED, variables
from olsgd_jax.training import join as join_others

TIMEOUT = 3600  # seconds
BOUND = str(pathlib.Path(__file__).with_name("bound.py"))
_ANSWER, _PROGRESS = "ANSWER ", "PROGRESS "
KEEP_MEMORY = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": f"{2**32}",
    "MALLOC_TRIM_THRESHOLD_": f"{2**32}",
}
"""Keeps glibc from returning memory to the system that the next round needs."""


def ask_all(module: str, question: object, num_hosts: int, rate: str) -> list:
    """Makes hosts, and runs `python -m module --measure QUESTION` on all of them.

    Args:
      module: a module of experiments; given --measure, it calls `join` and `answer`.
      question: what to measure; must be JSON.
      num_hosts: 2 to 4.
      rate: rate of every link, each way.

    Returns:
      The answer of each.
    """
    with hosts(num_hosts, rate):
        outputs = run_on_all(_asking(module, question), num_hosts, TIMEOUT)
    return _answers(outputs)


def ask_inside(
    enter: Sequence[str],
    module: str,
    question: object,
    num_processes: int,
    watch: Callable[[dict], None],
) -> list:
    """Runs `python -m module --measure QUESTION` in processes that share a loopback.

    Args:
      enter: command prefix that enters the namespace of the loopback; empty for this
        machine's own.
      module: module of experiments, as for `ask_all`.
      question: what to measure; must be JSON.
      num_processes: number of processes.
      watch: called with whatever process 0 passes to `tell_progress`.

    Returns:
      The answer of each.
    """
    # A new namespace has every port free, and one process alone needs none.
    coordinator = "127.0.0.1:9911"
    # Each process ends with this one, however that ends.
    bound = [*enter, sys.executable, "-I", "-S", BOUND, *_asking(module, question)]
    with on_signals(stop):
        outputs = _run_all([bound] * num_processes, coordinator, TIMEOUT, watch)
    return _answers(outputs)


def parse_or_measure(
    parser: argparse.ArgumentParser, measure: Callable[..., None]
) -> argparse.Namespace:
    """Reads the command line of a measurement on hosts.

    Exits with an error where there can be no hosts. In a process that `ask_all` has
    started, calls `measure` with the question, and exits.
    """
    parser.add_argument("--measure", type=json.loads, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        measure(*args.measure)
        sys.exit()
    if reason := why_not():
        parser.error(reason)
    return args


def answer(measured: object) -> None:
    """Sends what was measured to the process that asked."""
    print(_ANSWER + json.dumps(measured), flush=True)


def tell_progress(**how_far: int | str) -> None:
    """Tells the process that asked how far this one has come."""
    print(_PROGRESS + json.dumps(how_far), flush=True)


def run_on_all(command: Sequence[str], num_hosts: int, timeout: float) -> list[str]:
    """Runs a command on every host, and waits for all of them.

    The environment tells `join` of olsgd_jax.training which process it is. If the
    command fails on one host, it is stopped on the others.

    Returns:
      The output of each.
    """
    commands = [["ip", "netns", "exec", x, *command] for x in NAMES[:num_hosts]]
    return _run_all(commands, f"{address(0)}:9911", timeout)


def _asking(module: str, question: object) -> list[str]:
    return [sys.executable, "-m", module, "--measure", json.dumps(question)]


def _answers(outputs: Sequence[str]) -> list:
    # The transport prints lines too.
    lines = [
        [x for x in text.splitlines() if x.startswith(_ANSWER)] for text in outputs
    ]
    return [json.loads(line.removeprefix(_ANSWER)) for [line] in lines]


def _run_all(
    commands: Sequence[Sequence[str]],
    coordinator: str,
    timeout: float,
    watch: Callable[[dict], None] | None = None,
) -> list[str]:
    """Runs one command per process; otherwise like `run_on_all`."""
    num = len(commands)
    processes: list[subprocess.Popen] = []
    with contextlib.ExitStack() as stack:

        def file() -> TextIO:
            return stack.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8"))

        outputs, errors = ([file() for _ in range(num)] for _ in range(2))
        try:
            for i, command in enumerate(commands):
                process = subprocess.Popen(
                    command,
                    env={**os.environ, **KEEP_MEMORY, **variables(coordinator, num, i)},
                    stdout=outputs[i],
                    stderr=errors[i],
                )
                processes.append(process)
            look = _watching(outputs[0], watch) if watch else lambda: None
            failed = _first_failed(processes, timeout, look)
        finally:
            for process in processes:
                process.kill()
                process.wait()
        if failed is not None:
            how = "took too long" if failed < 0 else f"failed on host {failed}"
            said = "".join(map(_text, errors if failed < 0 else [errors[failed]]))
            raise RuntimeError(f"{' '.join(commands[max(failed, 0)])} {how}:\n{said}")
        return [_text(file) for file in outputs]


def _watching(file: TextIO, watch: Callable[[dict], None]) -> Callable[[], None]:
    """Makes a function that passes on the progress since its last call."""
    seen = 0

    def look() -> None:
        nonlocal seen
        # pread, because the writing process shares this file's position.
        text = os.pread(file.fileno(), 2**20, seen)
        whole = text[: text.rfind(b"\n") + 1]
        seen += len(whole)
        for line in whole.decode().splitlines():
            if line.startswith(_PROGRESS):
                watch(json.loads(line.removeprefix(_PROGRESS)))

    return look


def sent_bytes(host: str | None = None) -> int:
    """Reads how many bytes a host has sent; by default, this one."""
    path = f"/sys/class/net/{INTERFACE}/statistics/tx_bytes"
    if host is None:
        return int(pathlib.Path(path).read_text())
    command = ["ip", "netns", "exec", host, "cat", path]
    return int(subprocess.run(command, check=True, capture_output=True).stdout)


def join() -> int:
    """Joins the processes that `run_on_all` started, and pins this one to a core.

    Where there are fewer cores than hosts, some share one.

    Returns:
      The number of this process.
    """
    jax.config.update("jax_platforms", "cpu")
    process = join_others()
    if hasattr(os, "sched_setaffinity"):  # not on macOS
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[process.id % len(cores)]})
    # One thread for the mean and one for the local steps; the default is one per core.
    os.environ["PJRT_NPROC"] = "2"
    return process.id


def _first_failed(
    processes: list[subprocess.Popen], timeout: float, look: Callable[[], None]
) -> int | None:
    """Waits until all succeed or one fails; -1 if time runs out."""
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        look()
        codes = [process.poll() for process in processes]
        bad = [i for i, code in enumerate(codes) if code not in (None, 0, FOLLOWED)]
        if bad or None not in codes:
            return bad[0] if bad else None
        time.sleep(0.05)
    return -1


def _text(file: TextIO) -> str:
    file.seek(0)
    return file.read()
