"""What makes a mean and the local steps overlap, and run fast, on each platform.

Compilers differ in what they overlap by themselves. The form of the mean and the
options here are those for which the scheduled program shows the overlap.

    CPU                nothing overlaps inside of one program; convolutions inside of a
                       loop are slow unless they are channels-last
    GPU                one collective can run concurrently with a loop: the mean is one
                       vector
    TPU v5e            cannot run an all-reduce asynchronously, and fusing it into the
                       loop is slow to compile; but exchanges are asynchronous: the mean
                       is made of exchanges; with a single step it is one vector that is
                       fused into the step
    other TPUs         the sparse cores carry a collective of many arrays during a loop,
                       if asked to; but not while the devices of a worker need them for
                       gradients: then the mean is exchanged as on v5e
"""

from typing import NamedTuple

import jax
from jax.sharding import Mesh

from olsgd_jax.drivers.convolutions import channels_last_gradient
from olsgd_jax.drivers.forms.base import flat_form, fragments_form, held_form
from olsgd_jax.drivers.forms.buckets import buckets_form
from olsgd_jax.drivers.forms.exchange import exchange_form
from olsgd_jax.drivers.gathered import gathered_gradient
from olsgd_jax.round.local_steps import Gradient
from olsgd_jax.round.worker_round import Form, tree_form
from olsgd_jax.strategies.base import Strategy
from olsgd_jax.types import Driver
from olsgd_jax.workers.axis import WORKERS
from olsgd_jax.workers.mesh import FSDP, worker_devices
from olsgd_jax.workers.mesh_checks import check_mesh

# GPUs before Hopper do not schedule for overlap unless asked to.
SCHEDULE_FOR_OVERLAP = {"xla_gpu_enable_latency_hiding_scheduler": True}
# A loop counts together with the collectives inside it, which the devices of a worker
# need at every step: the limit has to leave room for them and for the mean.
MANY_COLLECTIVES = {"xla_gpu_experimental_parallel_collective_overlap_limit": 4096}
# Sums are joined up to this size. A fragment that is joined with a sum of the forward
# pass, such as that of synchronous batch norm, would have to wait for it.
FRAGMENTS_APART = {"xla_gpu_all_reduce_combine_threshold_bytes": 2**20}
# One of the orders of instructions that the compiler for TPUs tries. By itself it takes
# the one for which it expects to keep least at a time, but another one may keep less.
ORDER = {"xla_memory_scheduler": "list"}
EXCHANGE = {"xla_tpu_enable_async_all_to_all": "true", **ORDER}
FUSE_INTO_LOOPS = {
    "xla_enable_async_all_reduce": "true",
    "xla_tpu_enable_async_collective_fusion": "true",
    "xla_tpu_enable_async_collective_fusion_fuse_all_reduce": "true",
    "xla_tpu_enable_async_collective_fusion_while_loops": "true",
}
# All arrays, however small, many and large, in the one collective that is carried; and
# no look-ups of embeddings on these cores, which would wait for them at every step.
SPARSE_CORES = {
    "xla_tpu_enable_sparse_core_collective_offload_all_reduce": "true",
    "xla_tpu_sparse_core_all_reduce_offload_min_size_in_bytes": 0,
    "xla_tpu_sparse_core_all_reduce_offload_max_num_operands": 4096,
    "xla_jf_crs_combiner_threshold_in_bytes": 2**40,
    "xla_tpu_offload_gather_to_sparsecore": "false",
    **ORDER,
}


class Platform(NamedTuple):
    """How a round is compiled on one kind of device."""

    form: Form  # of a delayed mean, under the fused driver
    compiler_options: dict[str, str | bool | int]  # of the fused driver
    gradient: Gradient = jax.value_and_grad  # of the loss
    streamed: Form | None = None  # of a streamed mean; None: fragments


def platform_of(mesh: Mesh | None) -> Platform:
    """Chooses by the kind of the mesh's devices; lanes have no network to hide.

    >>> from olsgd_jax.drivers import platform_of
    >>> platform_of(None).compiler_options
    {}
    """
    device = jax.local_devices()[0] if mesh is None else mesh.devices.flat[0]
    if device.platform == "cpu":
        # A sum across processes depends on an element's place: send as `host` does.
        form = buckets_form(mesh) if _has_network(mesh) else tree_form
        return Platform(form, {}, channels_last_gradient)
    if mesh is None:
        return Platform(tree_form, {})
    if device.platform != "tpu":
        several = {} if worker_devices(mesh) == 1 else MANY_COLLECTIVES
        return Platform(flat_form(mesh), {**SCHEDULE_FOR_OVERLAP, **several})
    is_several = worker_devices(mesh) > 1
    if device.device_kind != "TPU v5 lite" and not is_several:
        return Platform(held_form, {**SPARSE_CORES})
    return Platform(
        exchange_form(flat_form(mesh), mesh),
        {**EXCHANGE} if is_several else {**EXCHANGE, **FUSE_INTO_LOOPS},
        gathered_gradient(mesh) if FSDP in mesh.shape else jax.value_and_grad,
        streamed=exchange_form(fragments_form(mesh), mesh),
    )


def compiler_options(
    mesh: Mesh | None, axis_name: str = WORKERS
) -> dict[str, str | bool | int]:
    """Gives the compiler options with which a step of `distribute` overlaps.

    `overlap_jit` passes them by itself. If you call `jax.jit` yourself, pass them as
    its `compiler_options`; `jax.pmap` takes none.

    Args:
      mesh: where the workers are; None for lanes of one device.
      axis_name: the mesh axis along which the workers lie.

    >>> from olsgd_jax import compiler_options, worker_mesh
    >>> compiler_options(worker_mesh(1))  # a CPU overlaps nothing inside one program
    {}
    """
    check_mesh(mesh, axis_name)
    if mesh is None:
        return {}
    match mesh.devices.flat[0].platform:
        case "cpu":
            return {}
        case "tpu":
            return {**EXCHANGE}
        case _:
            return {**SCHEDULE_FOR_OVERLAP, **MANY_COLLECTIVES, **FRAGMENTS_APART}


def default_driver(mesh: Mesh | None, strategy: Strategy) -> Driver:
    """Chooses "host" where there is a network to hide and one program cannot hide it.

    >>> from olsgd_jax import overlap_local_sgd, worker_mesh
    >>> from olsgd_jax.drivers.platforms import default_driver
    >>> default_driver(worker_mesh(1), overlap_local_sgd(pullback=0.6))
    'fused'
    """
    if mesh is None or strategy.mean_of != "start":
        return "fused"
    is_cpu = mesh.devices.flat[0].platform == "cpu"
    return "host" if is_cpu and _has_network(mesh) else "fused"


def _has_network(mesh: Mesh | None) -> bool:
    devices = [] if mesh is None else mesh.devices.flat
    return len({device.process_index for device in devices}) > 1
