"""Checks of users' trees.

They look at types, shapes and structures only, so they run before anything is compiled
and cost nothing afterwards.
"""

from collections.abc import Iterator, Mapping

import jax
import jax.numpy as jnp
import numpy as np

from olsgd_jax.types import ArrayTree, Params


def check_params(params: Params) -> None:
    """Raises unless `params` is a tree of at least one floating-point array."""
    leaves = jax.tree_util.tree_leaves_with_path(params)
    if not leaves:
        raise ValueError(
            "params must have at least one array, got an empty tree; "
            "pass the params that your model's init returns"
        )
    for path, leaf in leaves:
        dtype = getattr(leaf, "dtype", None)
        if dtype is None:
            raise TypeError(
                f"params must be arrays, got {type(leaf).__name__} at "
                f"{_where(path)}; wrap it in jnp.asarray"
            )
        if not jnp.issubdtype(dtype, jnp.floating):
            raise TypeError(
                f"params must be floating point, got {dtype} at {_where(path)}; "
                "keep what is not trained in model_state"
            )


def check_like(name: str, tree: ArrayTree, expected: ArrayTree, hint: str) -> None:
    """Raises unless `tree` has the structure, shapes and dtypes of `expected`."""
    wanted, got = _outline(expected), _outline(tree)
    for path in sorted(wanted.keys() | got.keys()):
        if wanted.get(path) != got.get(path):
            raise ValueError(
                f"{name} must have {wanted.get(path, 'nothing')} at {path}, "
                f"got {got.get(path, 'nothing')}; {hint}"
            )
    if jax.tree.structure(tree) != jax.tree.structure(expected):
        raise ValueError(
            f"{name} must have the structure {jax.tree.structure(expected)}, "
            f"got {jax.tree.structure(tree)}; {hint}"
        )


def check_leading_axes(
    name: str, tree: ArrayTree, axes: dict[str, int], hint: str = ""
) -> None:
    """Raises unless the first axes of every array in `tree` have the given sizes.

    Args:
      name: the argument's name, for the message.
      tree: the argument that the user passed.
      axes: sizes of the axes by name, in order, as in {"num_workers": 4}.
      hint: how to fix it, if the caller knows.
    """
    wanted = tuple(axes.values())
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    if not leaves:
        raise ValueError(f"{name} must have at least one array, got an empty tree")
    for path, leaf in leaves:
        shape = tuple(np.shape(leaf))
        if shape[: len(wanted)] != wanted:
            named = ", ".join(f"{axis} {size}" for axis, size in axes.items())
            raise ValueError(
                f"{name} must have leading axes ({named}), "
                f"got shape {shape} at {_where(path)}{hint and '; '}{hint}"
            )


def check_divisible(name: str, tree: ArrayTree, axis: int, by: int) -> None:
    """Raises unless the devices of a worker can split an axis of every array evenly.

    Args:
      name: the argument's name, for the message.
      tree: the argument that the user passed. Arrays without the axis are not split.
      axis: the axis to split.
      by: number of devices.
    """
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        shape = tuple(np.shape(leaf))
        if len(shape) > axis and shape[axis] % by:
            raise ValueError(
                f"{name} must have a batch size divisible by the {by} devices of a "
                f"worker, got shape {shape} at {_where(path)}"
            )


def _where(path: tuple) -> str:
    return jax.tree_util.keystr(path) or "the top"


def _outline(tree: ArrayTree) -> dict[str, str]:
    """Describes every array of a tree by its path, as in {"['w']": "float32[3]"}."""
    return {
        _where(path): f"{leaf.dtype}{list(leaf.shape)}"
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }


def containers_with(tree: ArrayTree, *names: str) -> Iterator[Mapping[str, ArrayTree]]:
    """Finds the named tuples and mappings in a tree that have all of these fields.

    >>> [found["x"] for found in containers_with([{"x": 1, "y": 2}, {"y": 3}], "x")]
    [1]
    """
    fields = tree if isinstance(tree, Mapping) else getattr(tree, "_asdict", dict)()
    if all(name in fields for name in names):
        yield fields
        return
    for child in jax.tree.leaves(tree, is_leaf=lambda x: x is not tree):
        if child is not tree:
            yield from containers_with(child, *names)
