"""Training in several processes: how each finds the others, and what if one is gone.

JAX connects the processes, and every one of them sends signs of life. Where these stop,
or never begin, JAX ends all others: nobody waits for ever. That takes `peer_timeout`. A
process that fails in `end_together` tells the others, which end at once.
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

    The first three say where process 0 is and which process this is, all of them or
    none. Without them the environment does, if `experiments.launch`, SLURM, Open MPI,
    GKE or Cloud TPU set it; and if nothing does, this process is the only one.

    With others, a thread listens for one that fails in `end_together`, and then ends
    this process too.

    Args:
      coordinator: host and port of process 0, as in "10.0.0.1:1234", with a free port
        and spelled alike in all processes.
      num_processes: number of processes.
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
    found = find_processes(coordinator, num_processes, process_id)
    if found is None or found[1] == 1:
        return Process(0, 1)
    coordinator, num_processes, process_id = found
    open_channel(
        process_id,
        connect_processes(coordinator, num_processes, process_id, join_timeout),
    )
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


@contextlib.contextmanager
def end_together() -> Iterator[None]:
    """Ends all processes if this one fails inside of the context, within seconds.

    Without it the others wait for the one that failed, until JAX ends all of them. For
    a function that calls `join`, or for what comes after that; it may decorate a
    function. Failing is an exception that nobody catches, or an exit with a status
    other than 0: this process says why, the others end with status 76 (`FOLLOWED`), and
    this one ends last, without anything that is done at a normal exit.

    >>> from olsgd_jax.training import end_together
    >>> with end_together():  # the only process fails as it would without
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
        # Errors of XLA begin with a status, and are of several kinds. Another process
        # may be the cause of them: if it does not say so, JAX will say which.
        if re.match("[A-Z_]+: ", str(error)):
            if channel.has_heard:
                channel.wait()  # until this process ends for that
            raise
        status = _report(error)
        channel.fail()
        os._exit(status)


def _report(error: BaseException) -> int:
    """Writes what Python would at the end of a process; gives the exit status."""
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
