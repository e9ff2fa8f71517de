"""Makes one model out of the state of a loop that uses the optax face.

`to_workers` gives every worker its own copy of a state. These functions do the opposite
for any tree of arrays with a leading worker axis: a linen TrainState, the state of an
nnx model and its optimizer, or a tuple of params and optimizer state.

    consensus_of    the mean of all workers: evaluate it, save it, or continue from it
    anchor_of       z, as stored in the strategy's state; the same on every worker
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from olsgd_jax._tree_checks import check_leading_axes, containers_with
from olsgd_jax.types import ArrayTree, Params


def consensus_of(state: ArrayTree) -> ArrayTree:
    """Averages the state of all workers, under any mapping.

    Floating-point arrays are averaged over the workers, in float32 or wider. All other
    arrays, such as step counts and random keys, are worker 0's.

    Args:
      state: arrays with a leading worker axis, such as the TrainState that a compiled
        step returns, or its params alone.

    Returns:
      The same tree without the worker axis, on one device of this process. All
      processes must call it. For code that makes global arrays of host data, such as
      the checkpoints of a pmapped loop, pass it through `jax.device_get`.

    >>> import jax.numpy as jnp
    >>> from olsgd_jax import consensus_of
    >>> consensus_of({"w": jnp.array([[1.0], [3.0]]), "step": jnp.array([7, 7])})
    {'step': Array(7, dtype=int32), 'w': Array([2.], dtype=float32)}
    """
    _check_worker_axis(state)
    return _local(jax.jit(_consensus, out_shardings=_replicated(state))(state))


def anchor_of(state: ArrayTree) -> Params:
    """Takes the anchor out of the state of all workers.

    Args:
      state: arrays with a leading worker axis that hold the state of a `distribute`
        with an anchor (overlap_local_sgd, easgd or streaming_diloco): a TrainState, the
        state of an nnx optimizer, or the optimizer state alone.

    Returns:
      The anchor, a tree like the params, without the worker axis.

    >>> import jax, jax.numpy as jnp, optax
    >>> from olsgd_jax import anchor_of, distribute, overlap_local_sgd, to_workers
    >>> tx = distribute(optax.sgd(0.1), overlap_local_sgd(0.6), sync_period=2)
    >>> anchor_of(to_workers(tx.init({"w": jnp.ones(1)}), num_workers=2))
    {'w': Array([1.], dtype=float32)}
    """
    found = [fields["anchor"] for fields in containers_with(state, "anchor")]
    if len(found) != 1:
        raise ValueError(
            f"state must hold one anchor, got {len(found)}; pass the state of a "
            "distribute with overlap_local_sgd, easgd or streaming_diloco, which keep "
            "one"
        )
    [anchor] = found
    _check_worker_axis(anchor)
    shardings = _replicated(anchor)
    return _local(jax.jit(_first, out_shardings=shardings)(anchor))


def _consensus(state: ArrayTree) -> ArrayTree:
    def average(x: jax.Array) -> jax.Array:
        if not jnp.issubdtype(x.dtype, jnp.floating):
            return x[0]
        is_narrow = jnp.finfo(x.dtype).bits < 32
        mean = jnp.mean(x, axis=0, dtype=jnp.float32 if is_narrow else x.dtype)
        return mean.astype(x.dtype)

    return jax.tree.map(average, state)


def _first(state: ArrayTree) -> ArrayTree:
    return jax.tree.map(lambda x: x[0], state)


def _replicated(state: ArrayTree) -> ArrayTree:
    """Gives shardings that replicate the results over the mesh of the state."""

    def sharding(x: jax.Array) -> NamedSharding | None:
        found = getattr(x, "sharding", None)
        return (
            NamedSharding(found.mesh, PartitionSpec())
            if isinstance(found, NamedSharding)
            else None
        )

    return jax.tree.map(sharding, state)


def _local(tree: ArrayTree) -> ArrayTree:
    return jax.tree.map(lambda x: x.addressable_data(0), tree)


def _check_worker_axis(state: ArrayTree) -> None:
    named = [
        (jax.tree_util.keystr(path) or "an array", leaf)
        for path, leaf in jax.tree_util.tree_leaves_with_path(state)
    ]
    for name, leaf in named:
        sharding = getattr(leaf, "sharding", None)  # NumPy's arrays have none
        if (  # step counts may be replicated, floating-point arrays may not
            sharding is not None
            and jnp.issubdtype(leaf.dtype, jnp.floating)
            and len(sharding.device_set) > 1
            and sharding.is_fully_replicated
        ):
            raise ValueError(
                f"state must have a leading worker axis, got {name} of shape "
                f"{np.shape(leaf)} that claims to be the same on all devices; workers "
                "differ, so map over the state (in_axes=0 and out_axes=0 of pmap, "
                "PartitionSpec('workers') of shard_map), or use overlap_jit"
            )
    for name, leaf in named:
        if np.ndim(leaf) == 0:
            raise ValueError(
                f"state must have a leading worker axis, got {name} of shape (); give "
                "the state one with to_workers before the first step"
            )
    sizes = [np.shape(leaf)[0] for leaf in jax.tree.leaves(state)]
    check_leading_axes("state", state, {"num_workers": sizes[0] if sizes else 0})
