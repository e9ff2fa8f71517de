"""Training in several processes: how each finds the others, and what if one is gone.

JAX connects the processes, and every one of them sends signs of life. Where these stop,
or never begin, JAX ends all others: nobody waits for ever. What it says then is hard to
read, so `last_words` adds a sentence that names the process.
"""

import os
import re
import sys
from types import TracebackType
from typing import NamedTuple

import jax
from jax.experimental import multihost_utils

from olsgd_jax._checks import check_count
from olsgd_jax.training.cluster.discover import find_processes
from olsgd_jax.training.cluster.exit_reason import explain_last_words
from olsgd_jax.training.cluster.rendezvous import connect_processes

JOIN_TIMEOUT, PEER_TIMEOUT = 300, 30
"""Seconds that `join` gives the others by default."""


class Process(NamedTuple):
    """Which one of how many processes this is.

    >>> from olsgd_jax.training import Process
    >>> Process(id=0, num_processes=4).id
    0
    """

    id: int  # process 0 is the one that writes
    num_processes: int


def join(
    coordinator: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    *,
    join_timeout: int = JOIN_TIMEOUT,
    peer_timeout: int = PEER_TIMEOUT,
) -> Process:
    """Joins all processes of a run. To be called before anything asks for a device.

    The first three say who is where, all of them or none. Without them the environment
    does, if `experiments.launch`, SLURM, Open MPI, GKE or Cloud TPU set it; and if
    nothing does, this process is the only one.

    With others, what it writes to its standard error goes through a small process that
    says why, should JAX end this one; and an exception that nobody catches ends this
    one at once.

    Args:
      coordinator: host and port of process 0, as in "10.0.0.1:1234"; the port is free.
      num_processes: how many there are.
      process_id: which of them this is, from 0.
      join_timeout: seconds within which all processes have to come.
      peer_timeout: seconds without a sign of life after which a process counts as
        dead. All others end then.

    Raises:
      ValueError: if the arguments do not fit each other.
      ConnectionError: if a process did not come, or they do not fit those of others.

    >>> from olsgd_jax.training import join
    >>> join()
    Process(id=0, num_processes=1)
    >>> join("127.0.0.1:1234", num_processes=1, process_id=0)
    Process(id=0, num_processes=1)
    """
    check_count("join_timeout", join_timeout)
    check_count("peer_timeout", peer_timeout)
    found = find_processes(coordinator, num_processes, process_id, join_timeout)
    if found is None or found[1] == 1:
        return Process(0, 1)
    coordinator, num_processes, process_id = found
    explain_last_words(join_timeout, peer_timeout)
    sys.excepthook = _leave
    others = connect_processes(coordinator, num_processes, process_id, join_timeout)
    for connection in others:
        connection.close()
    # It would catch SIGTERM, and a process that is asked to end would go on.
    jax.config.update("jax_enable_preemption_service", False)
    jax.distributed.initialize(
        coordinator,
        num_processes,
        process_id,
        initialization_timeout=join_timeout,
        heartbeat_timeout_seconds=peer_timeout,
        shutdown_timeout_seconds=peer_timeout,
    )
    return Process(process_id, num_processes)


def meet() -> None:
    """Waits until all processes are here.

    To be called at the end of a program: one that leaves counts as dead if another
    does not leave within `peer_timeout` as well, such as process 0, which may still
    write.

    >>> from olsgd_jax.training import meet
    >>> meet()  # the only process waits for nobody
    """
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices("olsgd_jax.meet")


def _leave(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Ends a process that failed, at once: others wait for it."""
    sys.__excepthook__(kind, error, trace)
    sys.stdout.flush()
    sys.stderr.flush()
    # Errors of XLA begin with a status, and are of several kinds. Another process may
    # be the cause of them: it is worth waiting for JAX to say which.
    if not re.match("[A-Z_]+: ", str(error)):
        os._exit(1)
