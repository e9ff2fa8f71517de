"""Shardings of arrays on the mesh of the workers.

Arrays of a state have a leading worker axis. `fsdp` splits one more axis: the longest
one whose length it divides. Batches have axes (worker, local step, batch, ...), and the
devices of a worker split the batch axis.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from olsgd_jax._checks import check_count
from olsgd_jax.types import ArrayTree
from olsgd_jax.workers.axis import WORKERS
from olsgd_jax.workers.mesh import FSDP
from olsgd_jax.workers.mesh_checks import check_mesh


def to_workers(
    tree: ArrayTree,
    num_workers: int,
    mesh: Mesh | None = None,
    axis_name: str = WORKERS,
) -> ArrayTree:
    """Gives every worker its own copy of a tree.

    Args:
      tree: arrays without a worker axis.
      num_workers: number of workers, m.
      mesh: where the workers are; None for lanes of one device.
      axis_name: name of the worker axis.

    Returns:
      The tree with a leading worker axis, placed on the mesh.

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

    check_mesh(mesh, axis_name)
    shardings = state_shardings(jax.eval_shape(copies, tree), mesh, axis_name)
    tree = jax.tree.map(_free_to_move, tree)
    return jax.jit(copies, out_shardings=shardings)(tree)


def _free_to_move(x: ArrayTree) -> ArrayTree:
    """Copies an array to the host if it is committed to one device, as a consensus."""
    is_bound = (
        isinstance(x, jax.Array)
        and not isinstance(x, Tracer)
        and x.committed
        and len(x.sharding.device_set) == 1
    )
    if not is_bound:
        return x
    if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        data = jnp.asarray(np.asarray(jax.random.key_data(x)))
        return jax.random.wrap_key_data(data, impl=jax.random.key_impl(x))
    return np.asarray(x)


def state_shardings(
    state: ArrayTree, mesh: Mesh | None, axis_name: str = WORKERS
) -> ArrayTree:
    """Gives the shardings of arrays with a leading worker axis; None without a mesh.

    >>> import jax.numpy as jnp
    >>> from olsgd_jax import worker_mesh
    >>> from olsgd_jax.workers import state_shardings
    >>> state_shardings(jnp.zeros((1, 3)), worker_mesh(1)).spec
    P('workers',)
    """
    if mesh is None:
        return None
    num_parts = mesh.shape.get(FSDP, 1)

    def sharding(x: ArrayTree) -> NamedSharding:
        return NamedSharding(
            mesh, PartitionSpec(axis_name, *_parts(x.shape[1:], num_parts))
        )

    return jax.tree.map(sharding, state)


def batch_shardings(batches: ArrayTree, mesh: Mesh | None) -> ArrayTree:
    """Gives the shardings of batches (worker, local step, batch, ...).

    >>> import jax.numpy as jnp
    >>> from olsgd_jax import worker_mesh
    >>> from olsgd_jax.workers import batch_shardings
    >>> batch_shardings(jnp.zeros((1, 4, 32, 3)), worker_mesh(1)).spec
    P('workers',)
    """
    if mesh is None:
        return None
    inner = tuple(name for name in mesh.shape if name != WORKERS)

    def sharding(x: ArrayTree) -> NamedSharding:
        parts = (None, inner) if inner and jnp.ndim(x) > 2 else ()
        return NamedSharding(mesh, PartitionSpec(WORKERS, *parts))

    return jax.tree.map(sharding, batches)


def place(tree: ArrayTree, shardings: ArrayTree) -> ArrayTree:
    """Constrains the shardings of a program's arrays; None leaves them open."""
    if shardings is None:
        return tree
    return lax.with_sharding_constraint(tree, shardings)


def to_host(x: jax.Array) -> np.ndarray:
    """Copies a whole small array to the host of every process.

    A single process skips the all-gather, which would be slower.

    >>> to_host(jnp.array([1, 2])).tolist()
    [1, 2]
    """
    if x.is_fully_addressable:
        return np.asarray(x)
    return multihost_utils.process_allgather(x, tiled=True)


def shard_specs(tree: ArrayTree, mesh: Mesh | None) -> ArrayTree:
    """Gives the partition specs of one worker's arrays, which have no worker axis.

    >>> from olsgd_jax import worker_mesh
    >>> shard_specs(jnp.zeros(3), worker_mesh(1))
    P()
    """
    num_parts = 1 if mesh is None else mesh.shape.get(FSDP, 1)
    return jax.tree.map(lambda x: PartitionSpec(*_parts(x.shape, num_parts)), tree)


def on_shards(
    fn: Callable, mesh: Mesh | None, in_specs: ArrayTree, out_specs: ArrayTree
) -> Callable:
    """Makes code of one worker run on each of its devices, on that device's shards.

    Use it for code that reorders the elements of arrays. Run on the whole worker, such
    code would have to gather the shards first.
    """
    if mesh is None or FSDP not in mesh.shape:
        return fn
    return jax.shard_map(
        fn,
        in_specs=in_specs,
        out_specs=out_specs,
        axis_names={FSDP},
        check_vma=False,
    )


def _parts(shape: tuple[int, ...], num_parts: int) -> tuple[str | None, ...]:
    """Splits the longest axis that splits evenly; small arrays may have none."""
    even = [axis for axis, n in enumerate(shape) if n and n % num_parts == 0]
    if num_parts == 1 or not even:
        return ()
    axis = max(even, key=lambda axis: shape[axis])
    return (*[None] * axis, FSDP)
