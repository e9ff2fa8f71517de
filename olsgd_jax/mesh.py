"""The mesh of the workers.

A worker is one device, or a group of them along one or two more axes:

    data    every device has the whole model and a part of every batch
    fsdp    every device has a part of the model's arrays and a part of every batch

The code of a worker is the same in all cases. The compiler derives from the placement
of its arrays what its devices send each other: the mean of gradients at every step,
and with `fsdp` the parts of the model that a step needs.
"""

from collections.abc import Sequence

import jax
import numpy as np
from jax.sharding import AxisType, Mesh

from olsgd_jax.checks import check_count
from olsgd_jax.types import Device
from olsgd_jax.workers import WORKERS

DATA, FSDP = "data", "fsdp"
"""Names of the mesh axes along which the devices of one worker lie."""


def worker_mesh(
    num_workers: int,
    devices: Sequence[Device] | None = None,
    *,
    data: int = 1,
    fsdp: int = 1,
) -> Mesh:
    """Makes a mesh of workers, each with data x fsdp devices that follow each other.

    Args:
      num_workers: m.
      devices: the devices to take them from; all devices of all hosts by default.
      data: parts of a batch that devices with the same model share.
      fsdp: parts that model and batch are cut into.

    >>> from olsgd_jax import worker_mesh
    >>> dict(worker_mesh(1).shape)
    {'workers': 1}
    """
    counts = {"num_workers": num_workers, DATA: data, FSDP: fsdp}
    for name, count in counts.items():
        check_count(name, count)
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
    inner = {name: size for name, size in {DATA: data, FSDP: fsdp}.items() if size > 1}
    chosen = np.array(devices[:needed]).reshape(num_workers, *inner.values())
    # shard_map wants Auto axes; jax.make_mesh would make them Explicit.
    types = (AxisType.Auto,) * chosen.ndim
    return Mesh(chosen, (WORKERS, *inner), axis_types=types)


def worker_devices(mesh: Mesh) -> int:
    """Counts the devices of one worker.

    >>> worker_devices(worker_mesh(1))
    1
    """
    return mesh.size // mesh.shape[WORKERS]
