"""The exact mean, by one sum over all workers or by two exchanges."""

from collections.abc import Callable, Hashable

import jax
import jax.numpy as jnp
from jax import lax

from olsgd_jax.reductions.base import Reduction
from olsgd_jax.reductions.codec import AS_IT_IS
from olsgd_jax.types import ArrayTree, Message, ReductionState
from olsgd_jax.workers.axis import WORKERS, worker_axes


def exact() -> Reduction:
    """Builds the exact mean, which has no state.

    >>> from olsgd_jax import exact
    >>> exact().name
    'exact'
    """
    return Reduction(
        name="exact",
        init=lambda message: (),
        reduce=_reduce,
        payload=num_bytes,
        is_lossless=True,
        codec=AS_IT_IS,
    )


def worker_mean(
    tree: ArrayTree,
    axis_name: Hashable = WORKERS,
    hold: Callable[[ArrayTree], ArrayTree] | None = None,
) -> ArrayTree:
    """Averages a tree over all workers.

    Args:
      tree: this worker's arrays.
      axis_name: name, or names, of the worker axis.
      hold: delays the sum of the arrays until some other value is computed. If it is
        given, arrays are sent as they are, and the sum is divided afterwards.

    Returns:
      The mean, the same on every worker.

    >>> import jax, jax.numpy as jnp
    >>> from olsgd_jax import worker_mean
    >>> jax.vmap(worker_mean, axis_name="workers")(jnp.array([1.0, 2.0, 6.0]))
    Array([3., 3., 3.], dtype=float32)
    """
    return _reduce(tree, (), axis_name, hold)[0]


def num_bytes(message: Message) -> int:
    """Counts the bytes of an uncompressed message, from its shapes.

    >>> num_bytes({"w": jnp.zeros((2, 3)), "b": jnp.zeros(2, jnp.bfloat16)})
    28
    """
    return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(message))


def _reduce(
    message: Message,
    state: ReductionState,
    axis_name: Hashable = WORKERS,
    hold: Callable[[ArrayTree], ArrayTree] | None = None,
) -> tuple[Message, ReductionState]:
    axes = worker_axes(axis_name)
    size = lax.axis_size(axes)

    def divide(tree: ArrayTree) -> ArrayTree:
        return jax.tree.map(lambda x: x / size, tree)

    # Divided first: a division after the sum would be fused with the code that uses the
    # mean, and on CPUs the last bits would depend on that code. With `hold` it is
    # divided last, because the quotients would need memory of their own until then.
    mean = lax.psum(divide(message) if hold is None else message, axes)
    if hold is not None:
        mean = divide(hold(mean))
    # With check_vma, shard_map types a mean as one value for all workers. The branches
    # of a cond and the carry of a scan need each worker's own copy. Selecting between
    # the mean and the worker's own value makes it one; the compiler drops the select.
    mean = jax.tree.map(lambda x, own: jnp.where(True, x, own), mean, message)
    return mean, state
