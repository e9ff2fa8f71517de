"""How the mean overlaps the local steps on each platform, and how both run fast.

Compilers differ in what they overlap by default. The forms and compiler options here
are those whose scheduled programs show the overlap.

    CPU                nothing overlaps inside one program; convolutions in a loop are
                       slow unless they are channels-last
    GPU                one collective can run concurrently with a loop, so the mean is
                       one vector
    TPU v5e            cannot run an all-reduce asynchronously, and fusing it into the
                       loop is slow to compile. Exchanges are asynchronous, so the mean
                       is made of exchanges; with a single step it is one vector, fused
                       into the step
    other TPUs         with the right options, the sparse cores run a collective of many
                       arrays during a loop, but not if the devices of a worker need
                       them for gradients; then the mean is exchanged as on v5e
"""

from typing import NamedTuple

import jax
from jax.sharding import Mesh

from olsgd_jax.drivers.convolutions import channels_last_gradient
from olsgd_jax.drivers.forms.base import flat_form, fragments_form, held_form
from olsgd_jax.drivers.forms.buckets import buckets_form
from olsgd_jax.drivers.forms.exchange import exchange_form
from olsgd_jax.drivers.gathered import gathered_gradient
from olsgd_jax.reductions.base import Reduction
from olsgd_jax.reductions.exact import exact
from olsgd_jax.round.local_steps import Gradient
from olsgd_jax.round.worker_round import Form, tree_form
from olsgd_jax.strategies.base import Strategy
from olsgd_jax.types import Driver
from olsgd_jax.workers.axis import WORKERS
from olsgd_jax.workers.mesh import FSDP, worker_devices
from olsgd_jax.workers.mesh_checks import check_mesh

# GPUs before Hopper do not schedule for overlap by default.
SCHEDULE_FOR_OVERLAP = {"xla_gpu_enable_latency_hiding_scheduler": True}
# The collectives inside a loop, which the devices of a worker need at every step, count
# toward the limit, so it must allow for them and for the mean.
MANY_COLLECTIVES = {"xla_gpu_experimental_parallel_collective_overlap_limit": 4096}
# XLA combines all-reduces up to this size. A fragment that is combined with one of the
# forward pass, such as that of synchronous batch norm, would have to wait for it.
FRAGMENTS_APART = {"xla_gpu_all_reduce_combine_threshold_bytes": 2**20}
# One of the schedulers that XLA for TPUs tries. By default it picks the one with the
# lowest estimated peak memory, but another one may need less.
ORDER = {"xla_memory_scheduler": "list"}
EXCHANGE = {"xla_tpu_enable_async_all_to_all": "true", **ORDER}
# A TPU's compiler starts a collective as late as its estimate of the link allows, which
# for a small fragment means during the optimizer's update, after all matrix products.
# With a lower estimate of the computation's time it starts earlier. A tenth is not low
# enough for convolutions, which would compute for long beside a few compressed bytes.
START_EARLY = {
    "xla_lhs_loop_fusion_latency_multiplier": "0.01",
    "xla_lhs_output_fusion_latency_multiplier": "0.01",
}
FUSE_INTO_LOOPS = {
    "xla_enable_async_all_reduce": "true",
    "xla_tpu_enable_async_collective_fusion": "true",
    "xla_tpu_enable_async_collective_fusion_fuse_all_reduce": "true",
    "xla_tpu_enable_async_collective_fusion_while_loops": "true",
}
# One collective for all arrays, however small, many or large, runs on the sparse cores.
# Embedding look-ups stay off these cores, since they would wait for it at every step.
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

    form: Form  # form of a delayed mean under the fused driver
    compiler_options: dict[str, str | bool | int]  # for the fused driver
    gradient: Gradient = jax.value_and_grad  # computes the gradient of the loss
    streamed: Form | None = None  # form of a streamed mean; None for fragments


def platform_of(mesh: Mesh | None, reduction: Reduction = exact()) -> Platform:
    """Chooses the platform by the mesh's devices; lanes have no network to hide.

    Args:
      mesh: the workers' mesh; None for lanes of one device.
      reduction: how messages become a mean. A compressed one takes two exchanges, one
        that is made of two means takes two sums.

    >>> from olsgd_jax.drivers import platform_of
    >>> platform_of(None).compiler_options
    {}
    """
    device = jax.local_devices()[0] if mesh is None else mesh.devices.flat[0]
    if device.platform == "cpu":
        # The rounding of a sum across processes depends on where an element is in the
        # vector, so this form sends the same buckets as the host driver.
        is_cut = _has_network(mesh) and reduction.two_means is None
        form = buckets_form(mesh) if is_cut else tree_form
        return Platform(form, {}, channels_last_gradient)
    if mesh is None:
        return Platform(tree_form, {})
    exchanged = exchange_form(flat_form(mesh), mesh)
    streamed = exchange_form(fragments_form(mesh), mesh)
    is_several = worker_devices(mesh) > 1
    if device.platform != "tpu":
        options = {**SCHEDULE_FOR_OVERLAP, **(MANY_COLLECTIVES if is_several else {})}
        if reduction.is_compressed:
            return Platform(exchanged, options, streamed=streamed)
        if reduction.two_means is not None:
            return Platform(fragments_form(mesh), options)
        return Platform(flat_form(mesh), options)
    adds_and_sends = device.device_kind != "TPU v5 lite" and not is_several
    if adds_and_sends and not reduction.is_in_two:
        return Platform(held_form, {**SPARSE_CORES})
    fuses = not (is_several or adds_and_sends)
    return Platform(
        exchanged,
        {**EXCHANGE, **FUSE_INTO_LOOPS} if fuses else {**EXCHANGE},
        gathered_gradient(mesh) if FSDP in mesh.shape else jax.value_and_grad,
        streamed=streamed,
    )


def compiler_options(
    mesh: Mesh | None, axis_name: str = WORKERS
) -> dict[str, str | bool | int]:
    """Gives the compiler options with which a step of `distribute` overlaps.

    `overlap_jit` passes them for you. If you call `jax.jit` yourself, pass them as its
    `compiler_options`. `jax.pmap` accepts no options.

    Args:
      mesh: the workers' mesh; None for lanes of one device.
      axis_name: name of the worker axis of the mesh.

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
            return {**EXCHANGE, **START_EARLY}
        case _:
            return {**SCHEDULE_FOR_OVERLAP, **MANY_COLLECTIVES, **FRAGMENTS_APART}


def default_driver(mesh: Mesh | None, strategy: Strategy) -> Driver:
    """Chooses "host" if there is a network to hide that one program cannot hide.

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
