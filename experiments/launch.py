r"""Question: how does a command run in several processes on this machine?

Run:     python -m experiments.launch --processes 4 -- \
             python -m experiments.train --preset cpu --num-workers 16
Cost:    that of the command
Answer:  the output of the processes, each line prefixed with its process number

The environment tells each process its number and the address of process 0; `join` reads
that. If one process fails, all others are ended, and its exit status becomes that of
the launcher; if JAX ended it, a sentence explains why. SIGTERM and SIGINT are forwarded
to all processes, which may take their time to save; a second signal kills them. On
GPUs, each process uses the GPU of its number.
"""

import contextlib
import os
import pathlib
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

from experiments.cli.options import command_parser
from experiments.processes.exit_reason import explain_exit
from experiments.processes.prefixed import Prefixed
from olsgd_jax.training import FOLLOWED, RESUMABLE, SECRET, variables

BOUND = str(pathlib.Path(__file__).parent / "processes" / "bound.py")
GRACE = 5.0  # seconds that the others have to end


def free_coordinator() -> str:
    """Finds a free address on this machine."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{listener.getsockname()[1]}"


def start(
    command: Sequence[str], num_processes: int, coordinator: str
) -> list[subprocess.Popen]:
    """Starts the processes, each the leader of its own group."""
    if shutil.which(command[0]) is None:
        raise FileNotFoundError(f"{command[0]} must be a program, and is not found")
    processes, secret = [], secrets.token_hex()
    for number in range(num_processes):
        known = {**variables(coordinator, num_processes, number), SECRET: secret}
        processes.append(
            subprocess.Popen(
                [sys.executable, "-I", "-S", BOUND, *command],
                env={"JAX_LOCAL_DEVICE_IDS": str(number), **os.environ, **known},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        )
    return processes


def run(command: Sequence[str], num_processes: int, grace: float = GRACE) -> int:
    """Runs a command in several processes until all of them have ended.

    Returns:
      0, or the exit status of the process that failed first; 128 more than the number
      of a signal that ended it, or that ended all of them. `RESUMABLE` if they say so.
    """
    asked: list[int] = []  # signals received
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: asked.append(number))
    processes: list[subprocess.Popen] = []
    failed: list[int] = []  # processes, without those that ended because of another
    status, num_sent, deadline = 0, 0, float("inf")
    try:
        processes += start(command, num_processes, free_coordinator())
        output = Prefixed(processes)
        while any(process.poll() is None for process in processes) or output.is_open:
            output.show(0.1)
            ended = [x.returncode for x in processes if x.poll()]
            failed += [
                number
                for number, process in enumerate(processes)
                if process.poll() not in (None, 0, FOLLOWED) and number not in failed
            ]
            if not status and (asked or failed):
                status = _say_why(output, asked, processes, failed)
                if failed and RESUMABLE not in ended:
                    asked.append(signal.SIGTERM)
            for number in asked[num_sent:]:
                _send(processes, number)
            num_sent = len(asked)
            if ended or num_sent > 1:
                deadline = min(deadline, time.monotonic() + grace)
            if time.monotonic() > deadline:
                break
        if failed and (reason := explain_exit(output.last_errors(failed[0]))):
            output.say(f"JAX ended process {failed[0]}: {reason}")
    finally:
        end_all(processes)
    if asked and status == 128 + asked[0]:
        ended = [process.returncode for process in processes]
        return RESUMABLE if RESUMABLE in ended else status
    # Without a status, the process that the others followed did not end by itself.
    return status or max(process.returncode for process in processes)


def end_all(processes: Sequence[subprocess.Popen]) -> None:
    """Kills what is left of the processes and of their children."""
    _send(processes, signal.SIGKILL)
    for process in processes:
        with process:  # closes its pipes, and waits for it
            pass


def _say_why(
    output: Prefixed,
    asked: list[int],
    processes: list[subprocess.Popen],
    failed: list[int],
) -> int:
    """Prints why all processes end, and returns the exit status."""
    if asked:
        output.say(f"{signal.Signals(asked[0]).name} came, and goes to all processes")
        return 128 + asked[0]
    number = failed[0]
    code = processes[number].returncode
    if code == RESUMABLE:
        output.say(f"process {number} was asked to stop, and can go on with --resume")
        return RESUMABLE
    how = f"by {signal.Signals(-code).name}" if code < 0 else f"with status {code}"
    output.say(f"process {number} ended first, {how}; all others are ended")
    return code if code > 0 else 128 - code


def _send(processes: Sequence[subprocess.Popen], number: int) -> None:
    """Sends a signal to all processes and their children."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)


def main() -> None:
    parser = command_parser(__doc__)
    add = parser.add_argument
    add("--processes", type=int, required=True, help="number of processes")
    add(
        "--grace",
        type=float,
        default=GRACE,
        help="seconds that processes have to end once one has ended, or after a second "
        "signal, before they are killed; %(default)g",
    )
    add("command", nargs="+", help="the command that each process runs, after --")
    args = parser.parse_args()
    if args.processes < 1:
        parser.error(f"--processes must be at least 1, got {args.processes}")
    if not 0 <= args.grace <= threading.TIMEOUT_MAX:
        parser.error(f"--grace must be at least 0, got {args.grace:g}")
    try:
        sys.exit(run(args.command, args.processes, args.grace))
    except OSError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
