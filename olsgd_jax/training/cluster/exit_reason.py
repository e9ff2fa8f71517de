"""Last words: one sentence about why JAX ended a process, after all that JAX printed.

JAX ends a process from inside of its own threads, where no Python code runs any more.
So another small process reads along what the first one writes to its standard error,
passes it on as it comes, and adds the sentence when the first one is gone. It is this
file, started as a script; it needs neither JAX nor the library.
"""

import os
import re
import signal
import subprocess
import sys

JAX_ENDED_IT = "Terminating process because the JAX distributed service detected"
KEPT = 1 << 16  # of the last bytes


def explain_last_words(join_timeout: int, peer_timeout: int) -> None:
    """Lets another process read along from here on, until this one ends."""
    command = [sys.executable, "-I", "-S", __file__]
    reader = subprocess.Popen(
        [*command, str(join_timeout), str(peer_timeout)],
        stdin=subprocess.PIPE,
        start_new_session=True,  # what ends this process leaves the reader alone
    )
    assert reader.stdin is not None
    os.dup2(reader.stdin.fileno(), 2)
    reader.stdin.close()
    reader.returncode = 0  # nobody waits for it: it ends after this process


def explanation(text: str, join_timeout: int, peer_timeout: int) -> str | None:
    """Says why JAX ended a process that wrote this last; None if it did not.

    >>> text = JAX_ENDED_IT + " errors: Task 1 heartbeat timeout. ..."
    >>> explanation(text, 300, 30)
    'process 1 died, hung or lost its network: ... for 30 s. This process ends too.'
    """
    if JAX_ENDED_IT not in text:
        return None
    silent = re.search(r"stopped sending heartbeats\):((?:\s*\d+\s)+)", text)
    dead = set(re.findall(r"Task (\d+) heartbeat timeout", text))
    dead |= set(silent[1].split() if silent else ())
    if dead:
        names = " and ".join(sorted(dead, key=int))
        return (
            f"process {names} died, hung or lost its network: no sign of life for "
            f"{peer_timeout} s. This process ends too."
        )
    if "RegisterTask" in text:
        return f"some processes did not come within {join_timeout} s. This one ends."
    if left := re.search(r"The first task at the barrier: (\d+)", text):
        return (
            f"process {left[1]} came to its end {peer_timeout} s ago and others did "
            f"not; what process {left[1]} wrote may say why. This process ends too."
        )
    return (
        "process 0 died, hung or lost its network, and nothing goes on without it. "
        "This process ends too."
    )


def _read_along(join_timeout: int, peer_timeout: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    kept = b""
    while part := os.read(0, KEPT):
        os.write(2, part)
        kept = (kept + part)[-KEPT:]
    said = explanation(kept.decode(errors="replace"), join_timeout, peer_timeout)
    if said:
        os.write(2, f"olsgd_jax: {said}\n".encode())


if __name__ == "__main__":
    _read_along(int(sys.argv[1]), int(sys.argv[2]))
