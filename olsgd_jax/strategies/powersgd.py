"""PowerSGD: the mean gradient in low rank, with error feedback.

For every matrix, at every local step, with gᵢ its gradient on worker i:

    Mᵢ ← gᵢ + eᵢ                   what was lost before is sent again
    P  ← orthonormal basis of meanᵢ (Mᵢ Q)
    Qᵢ ← Mᵢᵀ P
    eᵢ ← Mᵢ − P Qᵢᵀ                what this step loses
    Q  ← meanᵢ Qᵢ                  kept: the next step starts from it
    gᵢ ← P Qᵀ                      the same on every worker

A kernel of more than two axes is a matrix with its last axis as columns; vectors and
scalars are averaged as they are. The round has nothing left to mix.

Left open by the paper: eᵢ is what worker i's own Qᵢ loses, as in its Algorithm 2; the
published code subtracts P Qᵀ instead. Both errors have the same mean, and the models
depend on that mean only. The rank is cut to the smaller side of a matrix.

Where workers are absent from a round all means are over those present, and P, Q and the
step are every worker's, as in synchronous SGD. An absent worker's eᵢ stays, to be sent
when it returns.

Reference: T. Vogels, S. P. Karimireddy, M. Jaggi, "PowerSGD: Practical Low-Rank
Gradient Compression for Distributed Optimization", NeurIPS 2019, arXiv:1905.13727.
"""

from typing import NamedTuple

import jax
import optax
from jaxtyping import Array, Float

from olsgd_jax._checks import check_count, check_seed
from olsgd_jax._vectors import from_vectors, to_vectors
from olsgd_jax.strategies.base import NamedStrategy, Strategy
from olsgd_jax.strategies.low_rank import as_matrix, orthogonalise
from olsgd_jax.types import ArrayTree, Grads, Mean, Params


class PowerSgdState(NamedTuple):
    """What outlives a step."""

    error: list[Float[Array, "..."]]  # eᵢ of every matrix, in tree order; a worker's
    q: list[Float[Array, "..."]]  # Q of every matrix; the same on every worker


def powersgd(rank: int, seed: int = 0) -> Strategy:
    """Builds PowerSGD.

    Args:
      rank: columns of P and Q, at least 1; the paper uses 1, 2 and 4.
      seed: seed of the Q that the first step starts from.

    >>> import jax.numpy as jnp
    >>> from olsgd_jax import powersgd
    >>> strategy = powersgd(rank=1)
    >>> grads = {"w": jnp.outer(jnp.arange(3.0), jnp.ones(2)), "b": jnp.ones(2)}
    >>> state = strategy.init(grads)
    >>> reduced, state = strategy.reduce_grads(grads, state, lambda own: own)
    >>> jnp.abs(reduced["w"] - grads["w"]).max().item() < 1e-6  # it has rank 1
    True
    """
    check_count("rank", rank)
    check_seed("seed", seed)

    def init(params: Params) -> PowerSgdState:
        matrices = _matrices(jax.tree.leaves(params))
        keys = jax.random.split(jax.random.key(seed), max(len(matrices), 1))
        q = [
            jax.random.normal(key, (x.shape[1], min(rank, *x.shape)), x.dtype)
            for key, x in zip(keys, matrices, strict=False)
        ]
        return PowerSgdState(optax.tree.zeros_like(matrices), q)

    def reduce_grads(grads: Grads, state: PowerSgdState, mean: Mean):
        leaves, structure = jax.tree.flatten(grads)
        m = optax.tree.add(_matrices(leaves), state.error)
        p = [orthogonalise(x) for x in _as_one(mean, _products(m, state.q))]
        own_q = [x.T @ basis for x, basis in zip(m, p, strict=True)]
        q, others = _as_one(mean, (own_q, [x for x in leaves if not _is_matrix(x)]))

        error = optax.tree.sub(m, _products(p, [x.T for x in own_q]))
        low_rank = iter(_products(p, [x.T for x in q]))
        others = iter(others)
        reduced = [
            next(low_rank).reshape(x.shape) if _is_matrix(x) else next(others)
            for x in leaves
        ]
        return jax.tree.unflatten(structure, reduced), PowerSgdState(error, q)

    return Strategy(
        name="powersgd",
        mean_of="gradients",
        init=init,
        reduce_grads=reduce_grads,
        own=("error",),
        common=("params", "opt_state"),
    )


POWERSGD = NamedStrategy(powersgd, "PowerSGD", args={"rank": 2})


def _as_one(mean: Mean, tree: ArrayTree) -> ArrayTree:
    """Sends a tree as one vector: of many small arrays each would have its latency."""
    return from_vectors(mean(to_vectors(tree)), like=tree)


def _matrices(leaves: list[jax.Array]) -> list[jax.Array]:
    return [as_matrix(x) for x in leaves if _is_matrix(x)]


def _is_matrix(x: jax.Array) -> bool:
    return x.ndim >= 2 and x.size > 0


def _products(left: list[jax.Array], right: list[jax.Array]) -> list[jax.Array]:
    return [a @ b for a, b in zip(left, right, strict=True)]
