"""Exit reason: one sentence on why JAX ended a process, from what JAX wrote.

JAX ends a process from its own threads, where no Python code can run, and writes a long
report to standard error. This summarises it.
"""

import re

JAX_ENDED_IT = "Terminating process because the JAX distributed service detected"


def explain_exit(text: str) -> str | None:
    """Tells why JAX ended a process.

    Args:
      text: the end of what the process wrote to standard error.

    Returns:
      A sentence that names the process at fault, if known; None if JAX did not end it.

    >>> explain_exit(JAX_ENDED_IT + " errors: Task 1 heartbeat timeout. ...")
    'process 1 died, hung or lost its network: it gave no sign of life'
    """
    if JAX_ENDED_IT not in text:
        return None
    silent = re.search(r"stopped sending heartbeats\):((?:\s*\d+\s)+)", text)
    dead = set(re.findall(r"Task (\d+) heartbeat timeout", text))
    dead |= set(silent[1].split() if silent else ())
    if dead:
        names = " and ".join(sorted(dead, key=int))
        return (
            f"process {names} died, hung or lost its network: it gave no sign of life"
        )
    if "RegisterTask" in text:
        return "some processes did not come in time"
    if left := re.search(r"The first task at the barrier: (\d+)", text):
        return (
            f"process {left[1]} came to its end and others did not in time; what "
            f"process {left[1]} wrote may say why"
        )
    return "process 0 died, hung or lost its network, and nothing goes on without it"
