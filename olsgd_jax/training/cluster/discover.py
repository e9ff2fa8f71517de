"""Who is where: how many processes there are, which this is, and where process 0 is.

Arguments say so; without them the environment does. Its variables are those of
`ENVIRONMENT`, or those that SLURM, Open MPI, GKE and Cloud TPU set and JAX reads.
"""

import os
from collections.abc import Iterable

from jax._src.clusters import ClusterEnv

from olsgd_jax._checks import check_count
from olsgd_jax.types import Option

ENVIRONMENT = {
    "coordinator": "OLSGD_COORDINATOR",
    "num_processes": "OLSGD_NUM_PROCESSES",
    "process_id": "OLSGD_PROCESS_ID",
}
"""Variables by the argument that they stand for, for whoever starts the processes."""


def variables(coordinator: str, num_processes: int, process_id: int) -> dict[str, str]:
    """Gives the variables that tell a process who is where.

    >>> from olsgd_jax.training import variables
    >>> variables("10.0.0.1:1234", 4, 1)["OLSGD_PROCESS_ID"]
    '1'
    """
    values = coordinator, num_processes, process_id
    return dict(zip(ENVIRONMENT.values(), map(str, values), strict=True))


def find_processes(
    coordinator: str | None,
    num_processes: int | None,
    process_id: int | None,
    timeout: int,
) -> tuple[str, int, int] | None:
    """Finds out who is where; None if nobody says that there are other processes.

    >>> find_processes("10.0.0.1:1234", 4, 1, timeout=300)
    ('10.0.0.1:1234', 4, 1)
    >>> find_processes("10.0.0.1", 4, 1, timeout=300)
    Traceback (most recent call last):
    ValueError: coordinator must be HOST:PORT, got '10.0.0.1'
    """
    given = _complete(ENVIRONMENT, (coordinator, num_processes, process_id))
    if given is None:
        names = ENVIRONMENT.values()
        given = _complete(names, [os.environ.get(name) for name in names])
    if given is None:
        address = os.environ.get("JAX_COORDINATOR_ADDRESS")
        *found, _ = ClusterEnv.auto_detect_unset_distributed_params(
            address, None, None, None, None, timeout
        )
        given = _complete(ENVIRONMENT, found)
    if given is None:
        return None
    coordinator, num_processes, process_id = given
    _check(coordinator, num_processes, process_id)
    return coordinator, num_processes, process_id


def _complete(
    names: Iterable[str], values: Iterable[Option]
) -> tuple[str, int, int] | None:
    """Reads what is given; None if nothing is, an error if only a part of it is."""
    given = dict(zip(names, values, strict=True))
    missing = [name for name, value in given.items() if value is None]
    if len(missing) == len(given):
        return None
    if missing:
        raise ValueError(
            f"{', '.join(given)} must be given all together or not at all, "
            f"got no {' and no '.join(missing)}"
        )
    coordinator, *numbers = given.values()
    try:
        num_processes, process_id = map(int, numbers)
    except ValueError as error:
        names = " and ".join(list(given)[1:])
        raise ValueError(f"{names} must be whole numbers, got {numbers}") from error
    return coordinator, num_processes, process_id


def _check(coordinator: str, num_processes: int, process_id: int) -> None:
    host, _, port = coordinator.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise ValueError(f"coordinator must be HOST:PORT, got {coordinator!r}")
    check_count("num_processes", num_processes)
    if not 0 <= process_id < num_processes:
        raise ValueError(
            "process_id must be at least 0 and below num_processes "
            f"{num_processes}, got {process_id}"
        )
