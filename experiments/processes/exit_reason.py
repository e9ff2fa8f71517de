"""Exit reason: one sentence about why JAX ended a process, from what JAX wrote.

JAX ends a process from inside of its own threads, where no Python code runs any more,
and writes a long report to its standard error. Whoever reads that can say it shorter.
"""

import re

JAX_ENDED_IT = "Terminating process because the JAX distributed service detected"


def explain_exit(text: str) -> str | None:
    """Says why JAX ended a process.

    Args:
      text: what the process wrote last to its standard error.

    Returns:
      A sentence that names the process at fault, if one is; None if JAX did not end it.

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
