"""Fragments: the part of a message that each local step sends.

A message that is known at the start of the round is split into τ fragments. Step k
sends fragment k, which depends on no gradient of that step, and replaces it with the
result. A streamed round does this in its scan, the optax face in every call of
`update`. The optax face sends a fragment in one of two ways:

    psum        a sum of fragment k                          GPUs and CPUs; τ = 1; slots
                                                             with several workers
    exchange    steps 2p and 2p + 1 send a pair of           TPUs
                fragments: worker j first receives shard j
                of the pair from every worker and adds the
                shards, then sends its sum to every worker

A TPU starts an exchange early in a step and waits for it late. It starts a sum late,
and v5e cannot run one asynchronously. Either way a worker sends 2 (m − 1) / m models
per round. If τ is odd, the exchange of the last step is not used.
"""

from collections.abc import Callable, Hashable

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Int

from olsgd_jax._vectors import from_vectors, to_vectors
from olsgd_jax.drivers.forms.tiles import ROWS, tile_shape
from olsgd_jax.reductions.base import Reduction
from olsgd_jax.reductions.codec import Codec
from olsgd_jax.reductions.shards import start_exchange
from olsgd_jax.round.participation import Outgoing
from olsgd_jax.types import ArrayTree
from olsgd_jax.workers.axis import WORKERS, platform_here, shares_slot


def cut_fragments(tree: ArrayTree, sync_period: int) -> dict[str, jax.Array]:
    """Splits a tree into τ fragments of equal size, padded with zeros at the end.

    Returns:
      For each dtype, an array with axes (fragment, row, column).

    >>> import jax.numpy as jnp
    >>> from olsgd_jax.drivers import cut_fragments
    >>> cut_fragments(jnp.arange(5), sync_period=2)
    {'int32': Array([[[0, 1, 2]],
           [[3, 4, 0]]], dtype=int32)}
    """

    def cut(x: jax.Array) -> jax.Array:
        shape = _shape(-(-x.size // sync_period), sync_period)
        padding = sync_period * shape[0] * shape[1] - x.size
        return jnp.pad(x, (0, padding)).reshape(sync_period, *shape)

    return jax.tree.map(cut, to_vectors(tree))


def join_fragments(fragments: dict[str, jax.Array], like: ArrayTree) -> ArrayTree:
    """Undoes `cut_fragments`; `like` gives the shapes.

    >>> fragments = cut_fragments(jnp.arange(5), sync_period=2)
    >>> join_fragments(fragments, like=jnp.arange(5))
    Array([0, 1, 2, 3, 4], dtype=int32)
    """
    return from_vectors(jax.tree.map(jnp.ravel, fragments), like)


def send_fragment(
    reduction: Reduction,
    outgoing: Outgoing,
    k: Int[Array, ""],
    until: ArrayTree,
    axis_name: Hashable = WORKERS,
) -> tuple[Outgoing, ArrayTree]:
    """Reduces fragment k and replaces it with the result.

    Args:
      reduction: how fragments become their mean.
      outgoing: the fragments, and the reduction's state for them.
      k: index of the fragment.
      until: what the step computes. The result is not used before `until` is computed,
        so the compiler can wait for the fragment at the end of the step.
      axis_name: name of the worker axis.

    Returns:
      The fragments with the reduction's state, and `until`.

    >>> from olsgd_jax import send_nothing
    >>> outgoing = cut_fragments(jnp.arange(4), sync_period=2), ()
    >>> send_fragment(send_nothing(), outgoing, jnp.array(1), until=())[0][0]
    {'int32': Array([[[0, 1]],
           [[2, 3]]], dtype=int32)}
    """
    message, state = jax.tree.map(lambda x: _at(x, k), outgoing)
    sent = reduction.reduce(message, state, axis_name)
    sent, until = lax.optimization_barrier((sent, until))
    return jax.tree.map(lambda x, new: _put(x, new, k), outgoing, sent), until


def carry_fragment(
    reduction: Reduction,
    outgoing: Outgoing,
    k: Int[Array, ""],
    updates: ArrayTree,
    axis_name: Hashable,
) -> tuple[Outgoing, ArrayTree]:
    """Sends the fragment of step k in the optax face, in the platform's way.

    The arguments are those of `send_fragment`, with the updates as `until`. After step
    τ − 1 the fragments hold the mean.

    Returns:
      The fragments with the reduction's state, and the updates.
    """
    sync_period = jax.tree.leaves(outgoing)[0].shape[0]
    can_exchange = sync_period > 1 and not shares_slot(axis_name)
    codec = reduction.codec if can_exchange else None
    # What is coded takes two collectives, so GPUs send it over two steps as well.
    is_cpu, is_tpu = platform_here() == "cpu", platform_here() == "tpu"
    in_two = is_tpu or (reduction.is_compressed and not is_cpu)
    if codec is not None and in_two and isinstance(axis_name, str):
        return _exchange(codec, outgoing, k, updates, axis_name)

    def send(outgoing: Outgoing, updates: ArrayTree) -> tuple[Outgoing, ArrayTree]:
        return send_fragment(reduction, outgoing, k, updates, axis_name)

    if is_cpu:
        # Nothing overlaps inside one CPU program: a sum that starts early only takes a
        # thread from the step. A loop, unlike a barrier, makes it wait for the updates.
        return run_if(k >= 0, send, outgoing, updates)
    return send(outgoing, updates)


def run_if(is_so: Bool[Array, ""], fn: Callable, *carry: ArrayTree) -> tuple:
    """Runs `fn(*carry)` if `is_so`, as a loop of one iteration or none.

    A loop updates what it carries in place. For a branch, the compilers for GPUs and
    TPUs allocate separate results: up to three more models.
    """

    def once(_: Int[Array, ""], carry: tuple) -> tuple:
        # The barrier keeps the compiler from hoisting code out of the loop, where it
        # would run in every step.
        return fn(*lax.optimization_barrier(carry))

    return lax.fori_loop(0, is_so.astype(jnp.int32), once, carry)


def _exchange(
    codec: Codec,
    outgoing: Outgoing,
    k: Int[Array, ""],
    updates: ArrayTree,
    axis_name: str,
) -> tuple[Outgoing, ArrayTree]:
    m = lax.axis_size(axis_name)
    sync_period = jax.tree.leaves(outgoing)[0].shape[0]
    num_pairs = sync_period // 2
    pair, adds_up = jnp.minimum(k // 2, num_pairs - 1), k % 2 == 0

    def shards(x: jax.Array) -> jax.Array:
        rows = _at(_pairs(x, num_pairs), pair)
        size = -(-rows.shape[0] // (ROWS * m)) * ROWS
        rows = jnp.pad(rows, ((0, size * m - rows.shape[0]), (0, 0)))
        return rows.reshape(m, size, rows.shape[1])

    def copies(x: jax.Array) -> jax.Array:
        """In the pair's second step, m copies of the sum that the first one left."""
        return jnp.where(adds_up, x, jnp.broadcast_to(x[:1], x.shape))

    def put(x: jax.Array, new: jax.Array) -> jax.Array:
        pairs = _pairs(x, num_pairs)
        new = new.reshape(-1, new.shape[-1])[: pairs.shape[1]]
        if sync_period % 2:
            new = jnp.where(k < 2 * num_pairs, new, _at(pairs, pair))
        return _put(pairs, new, pair).reshape(x.shape)

    message, errors = jax.tree.map(shards, outgoing)
    message = jax.tree.map(copies, message)
    sent, finish = start_exchange(codec, message, errors, adds_up, axis_name)
    sent, updates = lax.optimization_barrier((sent, updates))
    return jax.tree.map(put, outgoing, finish(sent)), updates


def _shape(size: int, sync_period: int) -> tuple[int, int]:
    """Rows and columns of a fragment; the rows of all of them make whole pairs."""
    rows, columns = tile_shape(size)
    num_pairs = max(1, sync_period // 2) if sync_period % 2 else 1
    if rows == 1:
        return 1, -(-columns // num_pairs) * num_pairs
    step = ROWS * num_pairs
    return -(-rows // step) * step, columns


def _pairs(x: jax.Array, num_pairs: int) -> jax.Array:
    """The fragments as (pair, row, column); small fragments have one column."""
    columns = x.shape[2] if x.shape[1] > 1 else 1
    return x.reshape(num_pairs, -1, columns)


# Not x[k] and x.at[k].set, which allow for k out of bounds and copy the whole array.
def _at(x: jax.Array, k: Int[Array, ""]) -> jax.Array:
    return lax.dynamic_index_in_dim(x, k, axis=0, keepdims=False)


def _put(x: jax.Array, new: jax.Array, k: Int[Array, ""]) -> jax.Array:
    return lax.dynamic_update_index_in_dim(x, new, k, axis=0)
