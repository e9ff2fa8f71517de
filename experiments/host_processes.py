"""Processes on the hosts that `hosts` makes, one on each: from outside and inside."""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import TextIO

import jax

import olsgd_jax
from experiments.hosts import INTERFACE, NAMES, address, hosts
from olsgd_jax.who_is_where import variables

TIMEOUT = 3600  # seconds
_ANSWER = "ANSWER "
KEEP_MEMORY = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": f"{2**32}",
    "MALLOC_TRIM_THRESHOLD_": f"{2**32}",
}
"""For glibc, which would give memory back to the system that the next round needs."""


def ask_all(module: str, question: object, num_hosts: int, rate: str) -> list:
    """Makes hosts, and runs `python -m module --measure QUESTION` on all of them.

    Args:
      module: of experiments; given --measure, it calls `join` and `answer`.
      question: what to measure, as it can be written in JSON.
      num_hosts: 2 to 4.
      rate: of every link, each way.

    Returns:
      What each of them answered.
    """
    command = [sys.executable, "-m", module, "--measure", json.dumps(question)]
    with hosts(num_hosts, rate):
        outputs = run_on_all(command, num_hosts, TIMEOUT)
    # The transport prints lines of its own.
    lines = [
        [x for x in text.splitlines() if x.startswith(_ANSWER)] for text in outputs
    ]
    return [json.loads(line.removeprefix(_ANSWER)) for [line] in lines]


def answer(measured: object) -> None:
    """Gives what was measured to the process that asked."""
    print(_ANSWER + json.dumps(measured), flush=True)


def run_on_all(command: Sequence[str], num_hosts: int, timeout: float) -> list[str]:
    """Runs a command on every host, and waits for all of them.

    Its environment says who is where, as `olsgd_jax.join` reads it. If it fails on one
    host, it is stopped on the others.

    Returns:
      What each of them printed.
    """
    coordinator = f"{address(0)}:9911"
    processes: list[subprocess.Popen] = []
    with contextlib.ExitStack() as stack:

        def file() -> TextIO:
            return stack.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8"))

        outputs, errors = ([file() for _ in range(num_hosts)] for _ in range(2))
        try:
            for i, host in enumerate(NAMES[:num_hosts]):
                process = subprocess.Popen(
                    ["ip", "netns", "exec", host, *command],
                    env={
                        **os.environ,
                        **KEEP_MEMORY,
                        **variables(coordinator, num_hosts, i),
                    },
                    stdout=outputs[i],
                    stderr=errors[i],
                )
                processes.append(process)
            failed = _first_failed(processes, timeout)
        finally:
            for process in processes:
                process.kill()
                process.wait()
        if failed is not None:
            how = "took too long" if failed < 0 else f"failed on host {failed}"
            said = "".join(map(_text, errors if failed < 0 else [errors[failed]]))
            raise RuntimeError(f"{' '.join(command)} {how}:\n{said}")
        return [_text(file) for file in outputs]


def sent_bytes(host: str | None = None) -> int:
    """Reads how many bytes a host has sent; by default the one that runs this."""
    path = f"/sys/class/net/{INTERFACE}/statistics/tx_bytes"
    if host is None:
        return int(pathlib.Path(path).read_text())
    command = ["ip", "netns", "exec", host, "cat", path]
    return int(subprocess.run(command, check=True, capture_output=True).stdout)


def join() -> int:
    """Makes the process that calls it one of those that `run_on_all` started.

    Each is held on one core. Where there are fewer cores than hosts, some share one.

    Returns:
      Which of them it is.
    """
    jax.config.update("jax_platforms", "cpu")
    process, cores = olsgd_jax.join(), sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[process.id % len(cores)]})
    # One thread for the mean and one for the local steps; by default as many as cores.
    os.environ["PJRT_NPROC"] = "2"
    return process.id


def _first_failed(processes: list[subprocess.Popen], timeout: float) -> int | None:
    """Waits until all have ended well, or one has not; -1 where time is up."""
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        codes = [process.poll() for process in processes]
        bad = [i for i, code in enumerate(codes) if code not in (None, 0)]
        if bad or None not in codes:
            return bad[0] if bad else None
        time.sleep(0.05)
    return -1


def _text(file: TextIO) -> str:
    file.seek(0)
    return file.read()
