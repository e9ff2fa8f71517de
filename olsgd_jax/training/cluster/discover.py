"""Discovery: how many processes there are, which this is, and where process 0 is.

Arguments come first, then the variables of `ENVIRONMENT`, then those that SLURM, Open
MPI and GKE set for the processes of a job, then the metadata server of a TPU VM.
"""

import os
import pathlib
import re
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from olsgd_jax._checks import check_count
from olsgd_jax.types import Option

ENVIRONMENT = {
    "coordinator": "OLSGD_COORDINATOR",
    "num_processes": "OLSGD_NUM_PROCESSES",
    "process_id": "OLSGD_PROCESS_ID",
}
"""The environment variable for each argument; a launcher sets them."""


def variables(coordinator: str, num_processes: int, process_id: int) -> dict[str, str]:
    """Returns the variables that tell a process its number and that of all.

    >>> from olsgd_jax.training import variables
    >>> variables("10.0.0.1:1234", 4, 1)["OLSGD_PROCESS_ID"]
    '1'
    """
    values = coordinator, num_processes, process_id
    return dict(zip(ENVIRONMENT.values(), map(str, values), strict=True))


def find_processes(
    coordinator: str | None, num_processes: int | None, process_id: int | None
) -> tuple[str, int, int] | None:
    """Finds coordinator, number of processes and number of this process.

    Returns:
      None if there is no sign of other processes.
    """
    given = _complete(ENVIRONMENT, (coordinator, num_processes, process_id))
    if given is None:
        names = ENVIRONMENT.values()
        given = _complete(names, [os.environ.get(name) for name in names])
    if given is None:
        given = _complete(ENVIRONMENT, _find_job())
    if given is None:
        return None
    coordinator, num_processes, process_id = given
    host, _, port = coordinator.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise ValueError(f"coordinator must be HOST:PORT, got {coordinator!r}")
    check_count("num_processes", num_processes)
    if not 0 <= process_id < num_processes:
        raise ValueError(
            "process_id must be at least 0 and below num_processes "
            f"{num_processes}, got {process_id}"
        )
    return given


def _complete(
    names: Iterable[str], values: Iterable[Option]
) -> tuple[str, int, int] | None:
    """Reads the three values; None if all are missing, an error if some are."""
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


class Job(NamedTuple):
    """What a scheduler knows about the processes of a job."""

    host: str  # where process 0 runs
    port: int
    num_processes: int | str
    process_id: int | str


def _find_job() -> tuple[str | None, int | str | None, int | str | None]:
    """Finds the job that this process belongs to.

    As in JAX, JAX_COORDINATOR_ADDRESS and JAX_COORDINATOR_PORT take precedence over
    what the scheduler says.
    """
    address = os.environ.get("JAX_COORDINATOR_ADDRESS")
    for find in (_slurm_job, _open_mpi_job, _gke_job, _cloud_tpu_job):
        if (job := find()) is not None:
            port = os.environ.get("JAX_COORDINATOR_PORT", job.port)
            return address or f"{job.host}:{port}", job.num_processes, job.process_id
    return address, None, None


def _port_for(job: int) -> int:
    """Picks one of the last 4,096 ports, so that jobs on a host rarely collide."""
    return 2**16 - 2**12 + job % 2**12


def _slurm_job() -> Job | None:
    # JAX takes a process for a task of a job if it has all five.
    names = "JOB_ID", "STEP_NODELIST", "NTASKS", "PROCID", "LOCALID"
    found = [os.environ.get(f"SLURM_{name}") for name in names]
    if None in found:
        return None
    job, nodes, num_processes, process_id, _ = map(str, found)
    # The first host of a list such as rack[1-2]node[007,9],other.
    first = re.match(r"(\[[^]]*\]|[^,[])*", nodes)
    host = re.sub(r"\[(\w+)[^]]*\]", r"\1", first[0] if first else nodes)
    return Job(host, _port_for(int(job)), num_processes, process_id)


def _open_mpi_job() -> Job | None:
    names = "MCA_orte_hnp_uri", "COMM_WORLD_SIZE", "COMM_WORLD_RANK"
    found = [os.environ.get(f"OMPI_{name}") for name in names]
    if None in found:
        return None
    # For example 1531576320.0;tcp://10.96.0.1,10.148.0.1:34911; IPv6 is in brackets.
    uri, num_processes, process_id = map(str, found)
    parts = re.match(r"(\d+)\..*?tcp6?://(\[?)([^],]+?)(?:[],]|:\d+$)", uri)
    if parts is None:
        raise ValueError(
            "OMPI_MCA_orte_hnp_uri must be JOB.0;tcp://HOST:PORT, "
            f"got {uri!r}; pass coordinator, num_processes and process_id"
        )
    job, bracket, host = parts.groups()
    # Job numbers are multiples of 4,096.
    port = _port_for(int(job) // 2**12)
    return Job(f"[{host}]" if bracket else host, port, num_processes, process_id)


TPU_PORT = 8482


def _gke_job() -> Job | None:
    hosts = os.environ.get("TPU_PROCESS_ADDRESSES") or os.environ.get(
        "TPU_WORKER_HOSTNAMES"
    )
    number = os.environ.get("TPU_WORKER_ID", "")
    # If libtpu was loaded only to compile, it has put a warning there.
    if not hosts or not number.isdecimal():
        return None
    return _tpu_job(hosts.split(","), int(number), os.environ)


def _cloud_tpu_job() -> Job | None:
    if "TPU_SKIP_MDS_QUERY" in os.environ or not _has_tpu():
        return None
    try:
        number, hosts, known = map(
            _metadata, ("agent-worker-number", "worker-network-endpoints", "tpu-env")
        )
    except OSError as error:
        raise ConnectionError(
            "the metadata server of this TPU VM must say which process this is, got "
            f"{error}; pass coordinator, num_processes and process_id, or set "
            "TPU_SKIP_MDS_QUERY=1"
        ) from error
    if number is None or hosts is None:
        return None
    # Each is a name, or a triple of name, number and address.
    names = [host.split(":")[-1] for host in hosts.split(",")]
    pairs = re.findall(r"^(\w+) *: *'?([^'\n]*)", known or "", re.MULTILINE)
    return _tpu_job(names, int(number), {**dict(pairs), **os.environ})


def _tpu_job(hosts: list[str], number: int, known: Mapping[str, str]) -> Job:
    """Numbers the hosts slice by slice."""
    slices = int(known.get("MEGASCALE_NUM_SLICES") or 1)
    own_slice = int(known.get("MEGASCALE_SLICE_ID") or 0)
    first = known.get("MEGASCALE_COORDINATOR_ADDRESS") or hosts[0]
    count = len(hosts)
    process_id = number + own_slice * count
    return Job(first.split(":")[0], TPU_PORT, count * slices, process_id)


def _has_tpu() -> bool:
    """Looks on the PCI bus for a Google device other than a disk or network card."""
    for file in pathlib.Path("/sys/bus/pci/devices").glob("*/vendor"):
        kind = file.with_name("class").read_text()
        if file.read_text().strip() == "0x1ae0" and kind[:4] not in ("0x01", "0x02"):
            return True
    return False


def _metadata(key: str) -> str | None:
    """Reads an attribute of this machine; None if Google Cloud does not have it."""
    server = os.environ.get("GCE_METADATA_IP", "metadata.google.internal")
    request = urllib.request.Request(
        f"http://{server}/computeMetadata/v1/instance/attributes/{key}",
        headers={"Metadata-Flavor": "Google"},
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.read(1 << 20).decode()
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        raise
