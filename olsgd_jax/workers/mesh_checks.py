"""Checks of the user's mesh."""

from collections.abc import Hashable

from jax.sharding import AxisType, Mesh


def check_mesh(mesh: object, axis_name: Hashable) -> None:
    """Raises unless `mesh` is None, or a mesh with a usable worker axis.

    Args:
      mesh: the argument that the user passed.
      axis_name: name of the worker axis.

    >>> check_mesh([], "workers")
    Traceback (most recent call last):
    TypeError: mesh must be a jax.sharding.Mesh of devices, or None, got a list; ...
    """
    if mesh is None:
        return
    if not isinstance(mesh, Mesh):
        raise TypeError(
            "mesh must be a jax.sharding.Mesh of devices, or None, got a "
            f"{type(mesh).__name__}; make it with worker_mesh(num_workers), or of "
            "chosen devices with worker_mesh(num_workers, devices)"
        )
    if axis_name not in mesh.shape:
        raise ValueError(
            f"mesh must have an axis {axis_name!r}, got the axes "
            f"{', '.join(map(str, mesh.axis_names))}; make it with "
            "worker_mesh(num_workers), whose axis is 'workers', or pass the name of "
            "your axis as axis_name, here and to distribute"
        )
    if any(kind != AxisType.Auto for kind in mesh.axis_types):
        kinds = dict(zip(mesh.axis_names, map(str, mesh.axis_types), strict=True))
        raise ValueError(
            f"mesh must have axes of the type Auto, got {kinds}; make it with "
            "worker_mesh(num_workers), or give jax.make_mesh "
            f"axis_types=(AxisType.Auto,) * {len(mesh.axis_names)}"
        )
