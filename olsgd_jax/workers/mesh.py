"""The mesh of the workers.

A worker is one device, or a group of devices along one or two more axes:

    data    every device holds the whole model and a part of every batch
    fsdp    every device holds a shard of the model and a part of every batch

The code of a worker is the same in all cases. The compiler derives the communication
between its devices from the shardings: the mean of gradients at every step, and with
`fsdp` the shards of the model that a step needs.
"""

from collections.abc import Sequence

import jax
import numpy as np
from jax.sharding import AxisType, Mesh

from olsgd_jax._checks import check_count
from olsgd_jax.types import Device
from olsgd_jax.workers.axis import WORKERS

DATA, FSDP = "data", "fsdp"
"""Names of the mesh axes along which the devices of one worker lie."""


def worker_mesh(
    num_workers: int,
    devices: Sequence[Device] | None = None,
    *,
    data: int = 1,
    fsdp: int = 1,
) -> Mesh:
    """Makes a mesh of workers, each with data x fsdp consecutive devices.

    Args:
      num_workers: number of workers, m.
      devices: the devices to use; by default those of all hosts.
      data: number of devices with the same model that split a batch.
      fsdp: number of devices that split the model as well as the batch.

    >>> from olsgd_jax import worker_mesh
    >>> dict(worker_mesh(1).shape)
    {'workers': 1}
    """
    counts = {"num_workers": num_workers, DATA: data, FSDP: fsdp}
    for name, count in counts.items():
        check_count(name, count)
    of_all = devices is None
    devices = jax.devices() if devices is None else devices
    needed = num_workers * data * fsdp
    if needed > len(devices):
        each = f" of {data * fsdp} devices" if data * fsdp > 1 else ""
        raise ValueError(
            f"num_workers must be at most the number of devices, got {num_workers} "
            f"workers{each} and {len(devices)} devices; leave out the mesh to run "
            "workers as vmap lanes of one device, or on a CPU set "
            f"XLA_FLAGS=--xla_force_host_platform_device_count={needed} "
            "before jax starts"
        )
    if of_all:
        _check_all_take_part(num_workers, devices, needed)
    inner = {name: size for name, size in {DATA: data, FSDP: fsdp}.items() if size > 1}
    chosen = np.array(devices[:needed]).reshape(num_workers, *inner.values())
    # shard_map wants Auto axes; jax.make_mesh would make them Explicit.
    types = (AxisType.Auto,) * chosen.ndim
    return Mesh(chosen, (WORKERS, *inner), axis_types=types)


def process_devices() -> list[list[Device]]:
    """Lists the devices of every process; raises if their numbers differ.

    >>> len(process_devices())
    1
    """
    found = [[] for _ in range(jax.process_count())]
    for device in jax.devices():
        found[device.process_index].append(device)
    counts = [len(devices) for devices in found]
    if len(set(counts)) > 1:
        raise ValueError(
            "processes must have the same number of devices, got "
            f"{', '.join(map(str, counts))} in processes 0 to {len(counts) - 1}; "
            "start all of them in the same way, with JAX_LOCAL_DEVICE_IDS where some "
            "hosts have more"
        )
    return found


def share_workers(num_workers: int, num_processes: int) -> int:
    """Counts the workers of one process.

    >>> from olsgd_jax.workers import share_workers
    >>> share_workers(num_workers=8, num_processes=2)
    4
    """
    if num_workers % num_processes:
        low = num_workers // num_processes * num_processes
        near = " or ".join(str(x) for x in (low, low + num_processes) if x)
        raise ValueError(
            "num_workers must be a multiple of the number of processes, got "
            f"{num_workers} workers and {num_processes} processes; use {near} workers"
        )
    return num_workers // num_processes


def worker_devices(mesh: Mesh) -> int:
    """Counts the devices of one worker.

    >>> worker_devices(worker_mesh(1))
    1
    """
    return mesh.size // mesh.shape[WORKERS]


def count_workers(mesh: Mesh | None, num_workers: int | None) -> int:
    """Gives the number of workers; by default one per slot of the mesh."""
    if num_workers is None:
        if mesh is None:
            raise ValueError("num_workers must be given where there is no mesh")
        return mesh.shape[WORKERS]
    check_count("num_workers", num_workers)
    check_slots(mesh, num_workers)
    return num_workers


def check_slots(mesh: Mesh | None, num_workers: int) -> None:
    """Raises unless every slot of the mesh gets the same number of workers."""
    slots = 1 if mesh is None else mesh.shape[WORKERS]
    if not num_workers or num_workers % slots:
        raise ValueError(
            f"num_workers must be a multiple of the mesh axis {WORKERS!r}, "
            f"{slots}, got {num_workers}; a slot has one worker, or several as lanes"
        )


def _check_all_take_part(
    num_workers: int, devices: Sequence[Device], needed: int
) -> None:
    """Raises if a process has no worker, in which case processes would hang."""
    left_out = {x.process_index for x in devices} - {
        x.process_index for x in devices[:needed]
    }
    if left_out:
        raise ValueError(
            f"num_workers must give every process a device, got {num_workers} workers "
            f"and none for process {', '.join(map(str, sorted(left_out)))} of "
            f"{jax.process_count()}; pass the devices to take, the same from each "
            "process, or use more workers"
        )
