"""Targets: accelerators to compile for without having them.

The compilers need only a description of the hardware. XLA reads a GPU's from text, and
libtpu contains one for every TPU.
"""

import importlib.util
import os
from collections.abc import Sequence

import jax
from jax.experimental import topologies
from jax.sharding import Mesh

from olsgd_jax.aot.hardware import GPUS, HARDWARE, TPUS, target_config
from olsgd_jax.types import Device
from olsgd_jax.workers.mesh import worker_mesh

TARGETS = tuple(HARDWARE)
"""The names that `target` knows."""


def target(name: str, *, data: int = 1, fsdp: int = 1) -> Mesh:
    """Makes a mesh of accelerators that you do not have, to compile for.

    Args:
      name: one of `TARGETS`, such as h100 or v6e, optionally followed by a colon and
        the topology: slices x hosts x devices for GPUs, the shape of the slice for
        TPUs. The default topology has eight devices.
      data: see `worker_mesh`.
      fsdp: see `worker_mesh`.

    Returns:
      A mesh with as many workers as the devices allow. Programs compile for it but
      cannot run on it. Pass `lower` arguments of type `jax.ShapeDtypeStruct`, with a
      sharding on this mesh.

    Needs the compilers: pip install "olsgd_jax[aot]". With these installed, set
    JAX_PLATFORMS=cpu, or jax will look for the hardware.

    >>> from olsgd_jax.aot import target
    >>> target("p100:1x1x8")
    Traceback (most recent call last):
    ValueError: target must be one of a100, ...
    """
    kind, _, shape = name.partition(":")
    if kind not in TARGETS:
        raise ValueError(
            f"target must be one of {', '.join(TARGETS)}, with a topology as in "
            f"h100:1x1x8 or v5e:2x4, got {name!r}"
        )
    _check_compiler(kind)
    try:
        devices = _gpus(kind, shape) if kind in GPUS else _tpus(kind, shape)
    except NotImplementedError as error:
        raise ValueError(
            f"JAX_PLATFORMS must be cpu to compile for {kind} without one, got "
            f"{os.environ.get('JAX_PLATFORMS', 'nothing')!r}; set it before Python "
            "starts"
        ) from error
    except jax.errors.JaxRuntimeError as error:
        raise ValueError(
            f"target must have a topology that {kind} comes in, as in "
            f"{kind}:{HARDWARE[kind].topology}, got {name!r}"
        ) from error
    num_workers = len(devices) // (data * fsdp)
    return worker_mesh(num_workers, devices, data=data, fsdp=fsdp)


def _check_compiler(kind: str) -> None:
    module = "jax_cuda13_plugin" if kind in GPUS else "libtpu"
    if importlib.util.find_spec(module) is None:
        raise ModuleNotFoundError(
            f"target {kind} needs {module}, which is not installed; "
            'pip install "olsgd_jax[aot]"'
        )


def _gpus(kind: str, shape: str) -> Sequence[Device]:
    return topologies.get_topology_desc(
        platform="cuda",
        topology_name=kind,
        topology=shape or GPUS[kind].topology,
        target_config=target_config(GPUS[kind]),
    ).devices


def _tpus(kind: str, shape: str) -> Sequence[Device]:
    # libtpu queries the machine for TPUs when it loads, unless these variables answer
    # for it. Its lock protects a TPU from a second program, and there is no TPU here.
    for variable, value in {
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_WORKER_HOSTNAMES": "localhost",
        "TPU_ACCELERATOR_TYPE": "v5litepod-8",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    }.items():
        os.environ.setdefault(variable, value)
    tpu = TPUS[kind]
    name = f"{tpu.name}:{shape or tpu.topology}"
    return topologies.get_topology_desc(platform="tpu", topology_name=name).devices
