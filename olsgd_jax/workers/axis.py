"""The worker axis: runs the code of one worker on all workers.

Everything else in the library is written for one worker. `on_workers` runs that code on
all of them, as lanes of one device (`vmap`), one device each (`pmap`), or slots of a
mesh (`shard_map`). If there are more workers than slots, each slot runs several workers
as lanes.
"""

from collections.abc import Callable, Hashable

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh, PartitionSpec, get_abstract_mesh

from olsgd_jax._checks import check_choice
from olsgd_jax.types import ArrayTree, Mapping

WORKERS = "workers"
"""Name of the mesh axis along which workers differ."""

_LANES = "lanes"  # the vmap axis of the workers in one slot


def worker_axes(axis_name: Hashable = WORKERS) -> Hashable:
    """Gives the name, or names, of the mapped axes that hold all workers.

    >>> import jax, jax.numpy as jnp
    >>> jax.vmap(lambda x: x * (worker_axes() == WORKERS), axis_name="workers")(
    ...     jnp.ones(2)
    ... )
    Array([1., 1.], dtype=float32)
    """
    return (WORKERS, _LANES) if shares_slot(axis_name) else axis_name


def worker_count() -> int:
    """Counts the workers, inside the code of one worker.

    >>> import jax, jax.numpy as jnp
    >>> jax.vmap(lambda x: x / worker_count(), axis_name="workers")(jnp.ones(4))
    Array([0.25, 0.25, 0.25, 0.25], dtype=float32)
    """
    return lax.axis_size(worker_axes())


def common_value(x: jax.Array, axis_name: Hashable = WORKERS) -> jax.Array:
    """Turns the lanes' copies of a value that all workers share into one value.

    Under `vmap`, a branch on the copies would run both sides for every lane. A branch
    on one value runs only one side.

    Args:
      x: a value that is the same on all workers, such as a step count.
      axis_name: name, or names, of the worker axis.

    >>> import jax, jax.numpy as jnp
    >>> jax.vmap(common_value, axis_name="workers", out_axes=None)(jnp.ones(4))
    Array(1., dtype=float32)
    """
    names = axis_name if isinstance(axis_name, tuple) else (axis_name,)
    if WORKERS in names and _is_mapped(_LANES):
        names += (_LANES,)
    lanes = tuple(x for x in names if x not in get_abstract_mesh().manual_axes)
    return lax.pmax(x, lanes) if lanes else x


def varies(x: jax.Array, axis_name: Hashable = WORKERS) -> bool:
    """Whether an array may differ between workers, according to its type.

    Only a `shard_map` with `check_vma` tracks this. Under all other mappings every
    array may differ.

    >>> import jax, jax.numpy as jnp
    >>> jax.vmap(lambda x: x * varies(x), axis_name="workers")(jnp.ones(2))
    Array([1., 1.], dtype=float32)
    """
    names = set(axis_name if isinstance(axis_name, tuple) else (axis_name,))
    checked = names & _varying(lax.axis_index(axis_name))
    return not checked or bool(checked & _varying(x))


def shares_slot(axis_name: Hashable = WORKERS) -> bool:
    """Whether each slot of the mesh runs several workers, as lanes.

    >>> import jax, jax.numpy as jnp
    >>> jax.vmap(lambda x: x * shares_slot(), axis_name="workers")(jnp.ones(2))
    Array([0., 0.], dtype=float32)
    """
    return axis_name == WORKERS and _is_mapped(_LANES)


def platform_here() -> str | None:
    """Names the platform that mapped code is traced for; None under `vmap`.

    >>> platform_here()
    """
    device = get_abstract_mesh().abstract_device
    return None if device is None else device.platform


def on_workers(
    fn: Callable,
    mesh: Mesh | None = None,
    mapping: Mapping | None = None,
    axis_name: str = WORKERS,
) -> Callable:
    """Makes code for one worker run on all workers.

    Args:
      fn: takes and returns one worker's trees; may call `worker_mean`.
      mesh: a mesh with an axis `workers`; None for lanes of one device. The devices
        along the other axes belong to the same worker.
      mapping: "vmap", "pmap" or "shard_map"; by default "shard_map" with a mesh and
        "vmap" without.
      axis_name: name of the worker axis.

    Returns:
      A function of the same trees with a leading worker axis on every array. On a
      mesh its length is a multiple of the slots along that axis.

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
        return jax.vmap(fn, axis_name=axis_name)
    if mesh is None or axis_name not in mesh.shape:
        raise ValueError(
            f"mesh must have an axis {axis_name!r} under {mapping}, got {mesh}; "
            "make it with worker_mesh(num_workers)"
        )
    if mapping == "pmap":
        if mesh.size > mesh.shape[axis_name]:
            raise ValueError(
                "mapping must be 'shard_map' for workers of several devices, got "
                f"'pmap' and the mesh axes {dict(mesh.shape)}"
            )
        return jax.pmap(fn, axis_name=axis_name, devices=list(mesh.devices.flat))

    def on_slot(*trees: ArrayTree) -> ArrayTree:
        if jax.tree.leaves(trees)[0].shape[0] > 1:
            return jax.vmap(fn, axis_name=_LANES)(*trees)
        worker = jax.tree.map(lambda x: x[0], trees)
        return jax.tree.map(lambda x: jnp.asarray(x)[None], fn(*worker))

    spec = PartitionSpec(axis_name)
    # Unchecked, so that a loss may contain scans whose carry starts as a constant. Only
    # the worker axis is manual: a worker with several devices is one slot, and the
    # compiler partitions its code over them.
    return jax.shard_map(
        on_slot,
        mesh=mesh,
        in_specs=spec,
        out_specs=spec,
        axis_names={axis_name},
        check_vma=False,
    )


def _varying(x: jax.Array) -> frozenset[Hashable]:
    return jax.typeof(x).manual_axis_type.varying


def _is_mapped(axis_name: str) -> bool:
    try:
        lax.axis_size(axis_name)
    except NameError:
        return False
    return True
