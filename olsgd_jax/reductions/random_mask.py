"""The exact mean of some numbers, chosen anew for every message.

All workers draw the same numbers, one of every n, so no places are sent:

    S     one number of every n, the same on all workers
    xᵢ ← meanⱼ xⱼ in S, xᵢ elsewhere

What is not sent stays as it is on each worker, so nothing is lost, and the mean of all
workers does not change. With CoCoD-SGD, whose mix adds the progress yᵢ − xᵢ, this is
LOSCAR-SGD's merge:

    xᵢ ← meanⱼ xⱼ + (yᵢ − xᵢ) in S, yᵢ elsewhere

Sending what was left out with a later message, as other reductions do, diverges here:
in the n rounds that a number waits, all workers add up steps from its old value.

Only for strategies whose workers share nothing but the mean: where numbers are not
sent, an anchor or a velocity would differ between workers, and under synchronous SGD
the models would drift apart for good.

Reference: Y. Maziane, A. Mahran, A. Maranjyan, P. Richtárik, "LOSCAR-SGD: Local SGD
with Communication-Computation Overlap and Delay-Corrected Sparse Model Averaging",
2026, arXiv:2605.20866. There S is any set of that size.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from olsgd_jax._checks import check_number
from olsgd_jax.reductions.base import Draws, Part, Reduction
from olsgd_jax.reductions.exact import exact
from olsgd_jax.types import Message


def random_mask(fraction: float = 1 / 32) -> Reduction:
    """Builds the exact mean of a random fraction of the numbers.

    For `cocod_sgd` and `local_sgd`; it keeps no state.

    Args:
      fraction: share of the numbers that is sent, 1/n for a whole n, at least 1e-6.

    >>> import jax, jax.numpy as jnp, optax
    >>> from olsgd_jax import cocod_sgd, init_state, make_round, plain_loss, random_mask
    >>> loss, sgd = plain_loss(lambda x, batch: 0 * x.sum()), optax.sgd(1)
    >>> strategy, reduction = cocod_sgd(), random_mask(fraction=1 / 2)
    >>> run_round = make_round(
    ...     loss, sgd, strategy, sync_period=1, reduction=reduction
    ... )
    >>> state = init_state(
    ...     jnp.zeros(4), sgd, strategy, num_workers=2, reduction=reduction
    ... )
    >>> state = state._replace(params=jnp.array([[0.0] * 4, [2.0] * 4]))
    >>> state, _ = run_round(state, jnp.zeros((2, 1)))
    >>> (state.params == 1).sum(axis=1).tolist()  # two of four have met
    [2, 2]
    """
    check_number("fraction", fraction, 1e-6, 1, "[]")
    n = round(1 / fraction)
    if abs(1 / fraction - n) > 1e-6:
        raise ValueError(
            f"fraction must be 1/n for a whole n, got {fraction:g}; "
            f"pass 1/{n} = {1 / n:g}"
        )

    def draw(draws: Draws | None) -> Reduction:
        def keys(message: Message) -> Message:
            leaves, structure = jax.tree.flatten(message)
            # Outside a round, as if it were the first message.
            key = jax.random.key(0) if draws is None else draws.shared
            each = [jax.random.fold_in(key, i) for i in range(len(leaves))]
            return jax.tree.unflatten(structure, each)

        def take(message: Message) -> Message:
            def taken(x: jax.Array, key: jax.Array) -> jax.Array:
                groups = _groups(x, n)
                zero = jnp.zeros((), x.dtype)
                return jnp.where(_chosen(groups, key), groups, zero).sum(axis=0)

            return jax.tree.map(taken, message, keys(message))

        def put(mean: Message, own: Message) -> Message:
            def filled(mean: jax.Array, x: jax.Array, key: jax.Array) -> jax.Array:
                groups = _groups(x, n)
                mixed = jnp.where(_chosen(groups, key), mean, groups)
                return mixed.ravel()[: x.size].reshape(x.shape)

            return jax.tree.map(filled, mean, own, keys(own))

        def payload(message: Message) -> int:
            leaves = jax.tree.leaves(message)
            return sum(-(-x.size // n) * x.dtype.itemsize for x in leaves)

        return exact()._replace(
            name="random_mask", payload=payload, part=Part(take, put), draw=draw
        )

    return draw(None)


def _groups(x: jax.Array, n: int) -> jax.Array:
    """Gives n rows; a group is a column."""
    return jnp.pad(x.ravel(), (0, -x.size % n)).reshape(n, -1)


def _chosen(groups: jax.Array, key: jax.Array) -> Bool[Array, "n groups"]:
    n, num_groups = groups.shape
    place = jax.random.randint(key, (num_groups,), 0, n)
    return jnp.arange(n)[:, None] == place
