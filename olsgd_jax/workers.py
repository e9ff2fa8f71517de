"""The worker axis: where the workers are, and the one mean over all of them.

Everything else in the library is written for one worker. `on_workers` makes that
code run on all of them, as lanes of one device (`vmap`), one device each (`pmap`),
or places on a mesh (`shard_map`), and `worker_mean` is how they meet.
"""

from collections.abc import Callable, Hashable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from olsgd_jax.checks import check_choice, check_count
from olsgd_jax.types import ArrayTree, Device, Mapping

WORKERS = "workers"
"""Name of the mesh axis along which workers differ."""


def worker_mean(tree: ArrayTree, axis_name: Hashable = WORKERS) -> ArrayTree:
    """Averages a tree over all workers; the library's only collective.

    Args:
      tree: this worker's arrays.
      axis_name: the mapped axis, or axes, along which the workers lie.

    Returns:
      The mean, the same on every worker.

    >>> import jax, jax.numpy as jnp
    >>> from olsgd_jax import worker_mean
    >>> jax.vmap(worker_mean, axis_name="workers")(jnp.array([1.0, 2.0, 6.0]))
    Array([3., 3., 3.], dtype=float32)
    """

    size = lax.axis_size(axis_name)
    # Divided first: a division after the sum would be fused with the mean's use, and
    # its last bits would depend on what that is.
    mean = lax.psum(jax.tree.map(lambda x: x / size, tree), axis_name)
    # A checked shard_map types a mean as one value for all workers. As one of two
    # values to choose from it becomes each worker's own copy again, as the branches
    # of a cond and the carry of a scan want it. The compiler drops the choice.
    return jax.tree.map(lambda x, own: jnp.where(True, x, own), mean, tree)


def worker_mesh(num_workers: int, devices: Sequence[Device] | None = None) -> Mesh:
    """Makes a mesh with one device for each worker.

    Args:
      num_workers: m, at most the number of devices.
      devices: the devices to take them from; all devices of all hosts by default.

    >>> from olsgd_jax import worker_mesh
    >>> dict(worker_mesh(1).shape)
    {'workers': 1}
    """
    check_count("num_workers", num_workers)
    devices = jax.devices() if devices is None else devices
    if num_workers > len(devices):
        raise ValueError(
            f"num_workers must be at most the number of devices, got {num_workers} "
            f"workers and {len(devices)} devices; leave out the mesh to run workers "
            "as vmap lanes of one device, or on a CPU set "
            f"XLA_FLAGS=--xla_force_host_platform_device_count={num_workers} "
            "before jax starts"
        )
    # shard_map wants Auto axes; jax.make_mesh would make them Explicit.
    chosen = np.array(devices[:num_workers])
    return Mesh(chosen, (WORKERS,), axis_types=(AxisType.Auto,))


def on_workers(
    fn: Callable, mesh: Mesh | None = None, mapping: Mapping | None = None
) -> Callable:
    """Makes code for one worker run on all workers.

    Args:
      fn: takes and returns one worker's trees; may call `worker_mean`.
      mesh: a mesh with an axis `workers`; None for lanes of one device.
      mapping: "vmap", "pmap" or "shard_map"; by default "shard_map" with a mesh and
        "vmap" without.

    Returns:
      A function of the same trees with a leading worker axis on every array.

    >>> import jax.numpy as jnp
    >>> from olsgd_jax import on_workers, worker_mean
    >>> def distance_to_mean(x):
    ...     return x - worker_mean(x)
    >>> on_workers(distance_to_mean)(jnp.array([1.0, 2.0, 6.0]))
    Array([-2., -1.,  3.], dtype=float32)
    """
    mapping = mapping or ("vmap" if mesh is None else "shard_map")
    check_choice("mapping", mapping, ("vmap", "pmap", "shard_map"))
    if mapping == "vmap":
        if mesh is not None:
            raise ValueError("mesh must be None under vmap, whose lanes have no mesh")
        return jax.vmap(fn, axis_name=WORKERS)
    if mesh is None or WORKERS not in mesh.shape:
        raise ValueError(
            f"mesh must have an axis {WORKERS!r} under {mapping}, got {mesh}; "
            "make it with worker_mesh(num_workers)"
        )
    if mapping == "pmap":
        return jax.pmap(fn, axis_name=WORKERS, devices=list(mesh.devices.flat))

    def on_one(*trees: ArrayTree) -> ArrayTree:
        worker = jax.tree.map(lambda x: x[0], trees)
        return jax.tree.map(lambda x: x[None], fn(*worker))

    spec = PartitionSpec(WORKERS)
    # Unchecked, so that a loss may hold scans whose carry starts as a constant.
    return jax.shard_map(
        on_one, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False
    )


def to_workers(
    tree: ArrayTree, num_workers: int, mesh: Mesh | None = None
) -> ArrayTree:
    """Gives every worker its own copy of a tree.

    Args:
      tree: arrays without a worker axis.
      num_workers: m.
      mesh: where the workers are; None for lanes of one device.

    Returns:
      The tree with a leading worker axis, sharded over the mesh.

    >>> import jax.numpy as jnp
    >>> from olsgd_jax import to_workers
    >>> to_workers({"w": jnp.array([1.0, 2.0])}, num_workers=3)["w"].shape
    (3, 2)
    """
    check_count("num_workers", num_workers)

    def copies(tree: ArrayTree) -> ArrayTree:
        return jax.tree.map(
            lambda x: jnp.broadcast_to(x, (num_workers, *jnp.shape(x))), tree
        )

    return jax.jit(copies, out_shardings=worker_sharding(mesh))(tree)


def worker_sharding(mesh: Mesh | None) -> NamedSharding | None:
    """Says how arrays with a leading worker axis lie on the mesh.

    >>> worker_sharding(worker_mesh(1)).spec == PartitionSpec("workers")
    True
    """
    return None if mesh is None else NamedSharding(mesh, PartitionSpec(WORKERS))
