"""Training in several processes: how they start together, and how they end together.

JAX connects the processes, and each sends heartbeats. If those of one process stop, JAX
ends all others after `peer_timeout`, so nobody waits forever. A process that fails
inside of `end_together` tells the others, which then end within seconds.
"""

import contextlib
import os
import re
import sys
from collections.abc import Iterator
from typing import NamedTuple

import jax
from jax.experimental import multihost_utils

from olsgd_jax._checks import check_count
from olsgd_jax.training.cluster.channel import current_channel, open_channel
from olsgd_jax.training.cluster.discover import find_processes
from olsgd_jax.training.cluster.rendezvous import connect_processes

JOIN_TIMEOUT, PEER_TIMEOUT = 300, 30
"""Default timeouts of `join`, in seconds."""


class Process(NamedTuple):
    """The number of this process, and how many there are.

    >>> from olsgd_jax.training import Process
    >>> Process(id=0, num_processes=4).id
    0
    """

    id: int  # process 0 writes all files
    num_processes: int


def join(
    coordinator: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    *,
    join_timeout: int = JOIN_TIMEOUT,
    peer_timeout: int = PEER_TIMEOUT,
) -> Process:
    """Joins all processes of a run. Call it before anything asks for a device.

    Pass the first three arguments or none of them. Without them they are read from the
    environment that `experiments.launch`, SLURM, Open MPI, GKE or Cloud TPU set up. If
    there is none, this process is the only one.

    If there are others, a thread listens to them, and ends this process when another
    one fails inside of `end_together`.

    Args:
      coordinator: host and port of process 0, as in "10.0.0.1:1234". The port must be
        free, and the text the same in all processes.
      num_processes: number of processes.
      process_id: number of this process, from 0.
      join_timeout: seconds to wait until all processes have joined.
      peer_timeout: seconds without a heartbeat after which a process counts as dead,
        and all others end.

    Raises:
      ValueError: if the arguments contradict each other.
      ConnectionError: if a process did not join, or was given other arguments.

    >>> from olsgd_jax.training import join
    >>> join()
    Process(id=0, num_processes=1)
    >>> join("127.0.0.1:1234", num_processes=1, process_id=0)
    Process(id=0, num_processes=1)
    """
    check_count("join_timeout", join_timeout)
    check_count("peer_timeout", peer_timeout)
    found = find_processes(coordinator, num_processes, process_id)
    if found is None or found[1] == 1:
        return Process(0, 1)
    coordinator, num_processes, process_id = found
    open_channel(
        process_id,
        connect_processes(coordinator, num_processes, process_id, join_timeout),
    )
    # The service catches SIGTERM, which then no longer ends a process.
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
    """Waits until all processes have called it.

    Call it at the end of a program: a process that has left counts as dead unless the
    others leave within `peer_timeout`, and process 0 may still have files to write.

    >>> from olsgd_jax.training import meet
    >>> meet()  # a single process does not wait
    """
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices("olsgd_jax.meet")


@contextlib.contextmanager
def end_together() -> Iterator[None]:
    """Ends all processes within seconds if this one fails inside of the context.

    Without it the others wait for the one that failed until JAX ends them. Use it
    around `join` or after it, as a context or as a decorator. To fail is to raise an
    exception or to exit with a status other than 0: this process reports the error, the
    others end with status 76 (`FOLLOWED`), and this one ends last, without running exit
    handlers.

    >>> from olsgd_jax.training import end_together
    >>> with end_together():  # a single process fails as it would without
    ...     1 / 0
    Traceback (most recent call last):
    ZeroDivisionError: division by zero
    """
    try:
        yield
    except BaseException as error:
        channel = current_channel()
        if channel is None or (isinstance(error, SystemExit) and not error.code):
            raise
        # Errors of XLA have several classes, but all begin with a status. Another
        # process may have caused them. If it does not tell, JAX names it.
        if re.match("[A-Z_]+: ", str(error)):
            if channel.has_heard:
                channel.wait()  # the channel's thread is about to end this process
            raise
        status = _report(error)
        channel.fail()
        os._exit(status)


def _report(error: BaseException) -> int:
    """Prints what Python would at the end of a process; returns the exit status."""
    status = 1
    if not isinstance(error, SystemExit):
        sys.excepthook(type(error), error, error.__traceback__)
    elif isinstance(error.code, int):
        status = error.code
    else:
        print(error.code, file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    return status
