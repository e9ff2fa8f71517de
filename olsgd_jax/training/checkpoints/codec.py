"""Trees of arrays as orbax can write them, and what it does not keep about them.

orbax refuses arrays without elements. They are left out when a tree is written, and
made again when it is read.

An array made from a Python number has a weak type: it adopts the types of other arrays.
orbax does not keep that, but results depend on it, so the names of such arrays are
saved as well. Names are paths into the tree, such as `params.Dense_0.kernel`.
"""

from collections.abc import Collection

import jax
import jax.numpy as jnp

from olsgd_jax.types import ArrayTree

AnyArray = jax.Array | jax.ShapeDtypeStruct


def to_arrays(tree: ArrayTree) -> ArrayTree:
    """Turns all leaves into arrays.

    >>> to_arrays({"step": 7})
    {'step': Array(7, dtype=int32, weak_type=True)}
    """
    return jax.tree.map(_to_array, tree)


def shapes_of(tree: ArrayTree) -> dict[str, str]:
    """Gives dtype and shape of every array by name.

    >>> import jax.numpy as jnp
    >>> shapes_of({"w": jnp.zeros((2, 3))})
    {'w': 'float32[2,3]'}
    """
    return {
        name: f"{x.dtype}[{','.join(map(str, x.shape))}]"
        for name, x in _named(tree).items()
    }


def weak_in(tree: ArrayTree) -> list[str]:
    """Names the arrays that have weak types.

    >>> import jax.numpy as jnp
    >>> weak_in({"w": jnp.zeros(3), "step": jnp.asarray(0)})
    ['step']
    """
    # Random keys have no weak types.
    return [name for name, x in _named(tree).items() if getattr(x, "weak_type", False)]


def without_empty(tree: ArrayTree) -> ArrayTree:
    """Replaces every array without elements by None.

    >>> import jax.numpy as jnp
    >>> without_empty({"none": jnp.zeros((2, 0)), "one": jnp.ones(1)})
    {'none': None, 'one': Array([1.], dtype=float32)}
    """
    return jax.tree.map(lambda x: x if x.size else None, tree)


def targets(like: ArrayTree) -> ArrayTree:
    """Gives shape, dtype and sharding of every array.

    >>> import jax.numpy as jnp
    >>> targets({"w": jnp.zeros(3)})["w"].shape
    (3,)
    """

    def target(leaf: AnyArray | float) -> jax.ShapeDtypeStruct:
        x = _to_array(leaf)
        return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding)

    return jax.tree.map(target, like)


def from_read(
    tree: ArrayTree | None, asked: ArrayTree, weak: Collection[str]
) -> ArrayTree:
    """Restores what orbax does not keep.

    Args:
      tree: arrays that orbax has read, without the empty ones; None if all are empty.
      asked: `targets` of the whole tree.
      weak: names of the arrays that have weak types.

    >>> import jax.numpy as jnp
    >>> asked = targets({"none": jnp.zeros((2, 0)), "one": jnp.ones(1)})
    >>> from_read({"none": None, "one": jnp.ones(1)}, asked, weak=())
    {'none': Array([], shape=(2, 0), dtype=float32), 'one': Array([1.], dtype=float32)}
    """

    def leaf(path: tuple, target: jax.ShapeDtypeStruct, x: jax.Array | None):
        if x is None:
            return jnp.zeros(target.shape, target.dtype, device=target.sharding)
        return jax.device_put(_as_weak(x), x.sharding) if _name(path) in weak else x

    if tree is None:
        tree = jax.tree.map(lambda _: None, asked)
    return jax.tree.map_with_path(leaf, asked, tree)


def check_same_shapes(where: str, found: dict[str, str], asked: dict[str, str]) -> None:
    """Raises unless a checkpoint has the requested arrays."""
    differences = [
        f"{name} is {found.get(name, 'absent')}, not {asked.get(name, 'there')}"
        for name in {**asked, **found}
        if found.get(name) != asked.get(name)
    ]
    if differences:
        more = f", and {len(differences) - 3} more" if len(differences) > 3 else ""
        raise ValueError(
            f"{where} must be of the same model, optimizer, strategy and reduction, "
            f"but in it {'; '.join(differences[:3])}{more}"
        )


def _named(tree: ArrayTree) -> dict[str, AnyArray]:
    leaves = [(_name(path), x) for path, x in jax.tree.leaves_with_path(tree)]
    named = dict(leaves)
    if len(named) < len(leaves):
        raise ValueError(
            "tree must have names that differ once their parts are joined by dots, got "
            f"{', '.join(name for name, _ in leaves)}"
        )
    return named


def _name(path: tuple) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")


def _to_array(x: AnyArray | float) -> AnyArray:
    # jnp.asarray is slow even if it has nothing to do.
    return x if isinstance(x, AnyArray) else jnp.asarray(x)


@jax.jit
def _as_weak(x: jax.Array) -> jax.Array:
    return jnp.broadcast_to(x.dtype.type(0).item(), x.shape).at[...].set(x)
