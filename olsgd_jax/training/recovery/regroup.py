"""Any number of workers on the devices of a run that has another number of them.

A checkpoint of m workers is read on the mesh of n. Where the places of that mesh are
too many to have as many of the m each, several of them hold the same workers.
"""

import math

import jax
from jax.sharding import AxisType, Mesh, Sharding

from olsgd_jax.types import ArrayTree
from olsgd_jax.workers.axis import WORKERS
from olsgd_jax.workers.sharding import state_shardings

COPIES = "copies"
"""Name of the mesh axis along which devices hold the same workers."""


def regrouped(mesh: Mesh | None, num_workers: int) -> Mesh | None:
    """Groups the devices of a mesh so that so many workers lie evenly on it.

    >>> from olsgd_jax import worker_mesh
    >>> dict(regrouped(worker_mesh(1), num_workers=3).shape)
    {'workers': 1}
    """
    places = 1 if mesh is None else mesh.shape[WORKERS]
    groups = math.gcd(places, num_workers)
    if mesh is None or groups == places:
        return mesh
    devices = mesh.devices.reshape(groups, -1, *mesh.devices.shape[1:])
    names = (WORKERS, COPIES, *mesh.axis_names[1:])
    return Mesh(devices, names, axis_types=(AxisType.Auto,) * devices.ndim)


def like_workers(tree: ArrayTree, num_workers: int, mesh: Mesh | None) -> ArrayTree:
    """Says what arrays are like for another number of workers, and where they lie.

    Args:
      tree: arrays with a leading worker axis.
      num_workers: for which they are asked.
      mesh: mesh of the tree; None for lanes of one device.

    >>> import jax.numpy as jnp
    >>> like_workers({"w": jnp.zeros((4, 2))}, 3, mesh=None)["w"].shape
    (3, 2)
    """

    def shape(x: jax.Array, sharding: Sharding | None = None) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(
            (num_workers, *x.shape[1:]), x.dtype, sharding=sharding
        )

    if mesh is None:
        return jax.tree.map(lambda x: shape(x, x.sharding), tree)
    places = regrouped(mesh, num_workers)
    shardings = state_shardings(jax.tree.map(shape, tree), places)
    return jax.tree.map(shape, tree, shardings)
