"""Trees as flat dictionaries of plain arrays, as checkpoints hold them.

Names are paths into the tree, such as `params.Dense_0.kernel`; random keys become the
numbers behind them. What names and shapes a tree has is all that is asked of the one it
is read back into, so a difference can be said in a sentence.

The type of an array that was made of one of Python's numbers is weak: it gives way to
those of others. Whether it does so is kept as well, since results depend on it.
"""

from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp

from olsgd_jax.types import ArrayTree

Flat = dict[str, jax.Array]
AnyArray = jax.Array | jax.ShapeDtypeStruct


def to_flat(tree: ArrayTree) -> Flat:
    """Takes a tree apart.

    >>> import jax, jax.numpy as jnp
    >>> flat = to_flat({"w": (jnp.zeros(3), jax.random.key(0))})
    >>> {name: x.shape for name, x in flat.items()}
    {'w.0': (3,), 'w.1': (2,)}
    """
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    # To ask jnp.asarray about what is an array takes longer than all else here.
    arrays = [x if isinstance(x, jax.Array) else jnp.asarray(x) for _, x in leaves]
    names = [_name(path) for path, _ in leaves]
    flat = dict(zip(names, map(_plain, arrays), strict=True))
    if len(flat) < len(leaves):
        raise ValueError(
            "tree must have names that differ once their parts are joined by dots, got "
            f"{', '.join(names)}"
        )
    return flat


def weak_in(flat: Flat) -> list[str]:
    """Names the arrays whose types are weak.

    >>> import jax.numpy as jnp
    >>> weak_in({"w": jnp.zeros(3), "step": jnp.asarray(0)})
    ['step']
    """
    return [name for name, x in flat.items() if x.weak_type]


def from_flat(flat: Flat, like: ArrayTree, weak: Sequence[str] = ()) -> ArrayTree:
    """Puts a tree together again.

    Args:
      flat: its arrays.
      like: has its structure.
      weak: names of those whose types are to be weak.

    >>> import jax.numpy as jnp
    >>> from_flat({"w.0": jnp.ones(2)}, like={"w": (jnp.zeros(2),)})
    {'w': (Array([1., 1.], dtype=float32),)}
    """

    def leaf(path: tuple, own: AnyArray | float) -> jax.Array:
        name = _name(path)
        if isinstance(own, AnyArray) and _is_key(own):
            return _as_key(flat[name], own)
        x = flat[name]
        return jax.device_put(_as_weak(x), x.sharding) if name in weak else x

    return jax.tree_util.tree_map_with_path(leaf, like)


def targets(like: ArrayTree) -> dict[str, jax.ShapeDtypeStruct]:
    """Says of every plain array of a tree what it is like, and where it lies.

    >>> import jax.numpy as jnp
    >>> targets({"w": jnp.zeros(3)})["w"].shape
    (3,)
    """

    def described(x: AnyArray | float) -> jax.ShapeDtypeStruct:
        x = x if isinstance(x, AnyArray) else jnp.asarray(x)
        plain = jax.eval_shape(_plain, x)
        return jax.ShapeDtypeStruct(plain.shape, plain.dtype, sharding=x.sharding)

    leaves = jax.tree_util.tree_leaves_with_path(like)
    return {_name(path): described(x) for path, x in leaves}


def shapes_of(flat: Mapping[str, AnyArray]) -> dict[str, str]:
    """Says of every array what it is like.

    >>> import jax.numpy as jnp
    >>> shapes_of({"w": jnp.zeros((2, 3))})
    {'w': 'float32[2,3]'}
    """
    return {
        name: f"{x.dtype}[{','.join(map(str, x.shape))}]" for name, x in flat.items()
    }


def check_same_shapes(where: str, found: dict[str, str], asked: dict[str, str]) -> None:
    """Raises unless a checkpoint has the arrays that are asked for."""
    differences = [
        f"{name} is {found.get(name, 'absent')}, not {asked.get(name, 'there')}"
        for name in {**asked, **found}
        if found.get(name) != asked.get(name)
    ]
    if differences:
        more = f", and {len(differences) - 3} more" if len(differences) > 3 else ""
        raise ValueError(
            f"{where} must be of the same model, optimizer and strategy, but in it "
            f"{'; '.join(differences[:3])}{more}"
        )


def _name(path: tuple) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")


def _plain(x: jax.Array) -> jax.Array:
    return jax.random.key_data(x) if _is_key(x) else x


def _is_key(x: AnyArray) -> bool:
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def _as_key(data: jax.Array, like: AnyArray) -> jax.Array:
    kinds: list = []
    jax.eval_shape(lambda key: kinds.append(jax.random.key_impl(key)), like)
    return jax.random.wrap_key_data(data, impl=kinds[0])


@jax.jit
def _as_weak(x: jax.Array) -> jax.Array:
    return jnp.broadcast_to(x.dtype.type(0).item(), x.shape).at[...].set(x)
