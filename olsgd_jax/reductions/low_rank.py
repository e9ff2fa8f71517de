"""Matrices in low rank, by one step of a power iteration for every mean.

For every matrix of the message, with Mᵢ the one of worker i and r the rank:

    Mᵢ ← Mᵢ + eᵢ                   what was lost before is sent again
    P  ← orthonormal basis of meanᵢ (Mᵢ Q)
    Qᵢ ← Mᵢᵀ P
    Q  ← meanᵢ Qᵢ                  kept: the next mean starts from it
    mean = P Qᵀ                    the same on every worker
    eᵢ ← β (Mᵢ − P Qᵢᵀ)            what this mean loses, with a decay β

So r (rows + columns) numbers are sent instead of rows × columns, in two exact means, of
the Mᵢ Q and then of the Qᵢ. With β = 1, the mean over the workers of messages and old
errors is, exactly, the mean that arrives and the mean of new errors. An array of more
than two axes is a matrix with its last axis as columns; vectors and scalars are
averaged as they are.

With `sync_sgd`, whose messages are gradients, this is PowerSGD: every local step uses
the mean. Where workers are absent from a round, P and Q are means over those present,
and an absent worker's eᵢ stays, to be sent when it returns.

Left open by the paper: eᵢ is what worker i's own Qᵢ loses, as in its Algorithm 2; the
published code subtracts P Qᵀ instead. Both errors have the same mean, and the models
depend on that mean only. The rank is cut to the smaller side of a matrix. A column of Q
that would become 0, as all do where nobody has anything to send, keeps its old value:
from 0 it would never find what to send later.

Reference: T. Vogels, S. P. Karimireddy, M. Jaggi, "PowerSGD: Practical Low-Rank
Gradient Compression for Distributed Optimization", NeurIPS 2019, arXiv:1905.13727.
"""

import functools
from collections.abc import Callable, Hashable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from olsgd_jax._checks import check_count, check_number, check_seed
from olsgd_jax._vectors import from_vectors, to_vectors
from olsgd_jax.reductions.base import Reduction
from olsgd_jax.reductions.exact import num_bytes, worker_mean
from olsgd_jax.reductions.two_means import TwoMeans
from olsgd_jax.types import ArrayTree, Message
from olsgd_jax.workers.axis import WORKERS

Matrices = list[Float[Array, "..."]]
"""One for every matrix of a message, in tree order."""


class LowRankState(NamedTuple):
    """What outlives a mean."""

    error: Matrices  # eᵢ; a worker's own; empty without error feedback
    q: Matrices  # Q; the same on every worker


def low_rank(rank: int = 4, error_feedback: float = 1.0, seed: int = 0) -> Reduction:
    """Builds a mean of matrices in low rank; with `sync_sgd` it is PowerSGD.

    Args:
      rank: columns of P and Q, at least 1; the paper uses 1, 2 and 4.
      error_feedback: share of what is lost that is added to the next message, in
        [0, 1]; 0 for none.
      seed: seed of the Q that the first mean starts from.

    >>> import jax, jax.numpy as jnp
    >>> from olsgd_jax import low_rank
    >>> reduction = low_rank(rank=1)
    >>> def worker(message):
    ...     return reduction.reduce(message, reduction.init(message))[0]
    >>> of_rank_1 = jnp.outer(jnp.arange(3.0), jnp.ones(2))
    >>> mean = jax.vmap(worker, axis_name="workers")(jnp.stack([of_rank_1, of_rank_1]))
    >>> jnp.abs(mean - of_rank_1).max().item() < 1e-6
    True
    """
    check_count("rank", rank)
    if isinstance(error_feedback, bool):
        error_feedback = float(error_feedback)
    check_number("error_feedback", error_feedback, 0, 1, "[]")
    check_seed("seed", seed)

    def init(message: Message) -> LowRankState:
        matrices = _matrices(message)
        keys = jax.random.split(jax.random.key(seed), max(len(matrices), 1))
        q = [
            jax.random.normal(key, (x.shape[1], min(rank, *x.shape)), x.dtype)
            for key, x in zip(keys, matrices, strict=False)
        ]
        return LowRankState(
            optax.tree.zeros_like(matrices) if error_feedback else [], q
        )

    def whole(message: Message, state: LowRankState) -> Matrices:
        matrices = _matrices(message)
        return optax.tree.add(matrices, state.error) if error_feedback else matrices

    def first(message: Message, state: LowRankState) -> Matrices:
        return _products(whole(message, state), state.q)

    def second(
        message: Message, state: LowRankState, mean: Matrices
    ) -> tuple[Matrices, tuple[Matrices, Matrices]]:
        basis = [orthogonalise(x) for x in mean]
        others = [x for x in jax.tree.leaves(message) if not _is_matrix(x)]
        return basis, (_own_q(whole(message, state), basis), others)

    def finish(
        message: Message,
        state: LowRankState,
        basis: Matrices,
        mean: tuple[Matrices, Matrices],
    ) -> tuple[Message, LowRankState]:
        new_q, others = mean
        error = []
        if error_feedback:
            own = whole(message, state)
            lost = optax.tree.sub(own, _times(basis, _own_q(own, basis)))
            error = optax.tree.scale(error_feedback, lost)
        arrived, others = iter(_times(basis, new_q)), iter(others)
        result = jax.tree.map(
            lambda x: next(arrived).reshape(x.shape) if _is_matrix(x) else next(others),
            message,
        )
        q = [
            jnp.where(jnp.any(new != 0, axis=0), new, old)
            for new, old in zip(new_q, state.q, strict=True)
        ]
        return result, LowRankState(error, q)

    def reduce(
        message: Message,
        state: LowRankState,
        axis_name: Hashable = WORKERS,
        hold: Callable[[ArrayTree], ArrayTree] | None = None,
    ) -> tuple[Message, LowRankState]:
        def mean(tree: ArrayTree) -> ArrayTree:
            # As one vector: of many small arrays, each would have its latency.
            return from_vectors(worker_mean(to_vectors(tree), axis_name), like=tree)

        basis, others = second(message, state, mean(first(message, state)))
        result, state = finish(message, state, basis, mean(others))
        return (result if hold is None else hold(result)), state

    def payload(message: Message) -> int:
        def sent(message: Message) -> ArrayTree:
            state = init(message)
            return second(message, state, first(message, state))

        return num_bytes(jax.eval_shape(sent, message))

    return Reduction(
        "low_rank",
        init,
        reduce,
        payload,
        two_means=TwoMeans(first, second, finish),
        shared=("q",),
    )


def as_matrix(x: Float[Array, "..."]) -> Float[Array, "rows columns"]:
    """Views an array of two or more axes as a matrix; the last axis is its columns.

    >>> as_matrix(jnp.zeros((3, 3, 16, 32))).shape
    (144, 32)
    """
    return x.reshape(-1, x.shape[-1])


def orthogonalise(x: Float[Array, "rows rank"]) -> Float[Array, "rows rank"]:
    """Gives an orthonormal basis of the columns of a matrix with at least as many rows.

    All such bases P of the same columns have the same product P Pᵀ. So this uses a QR
    decomposition instead of the paper's Gram-Schmidt. Its result is orthonormal even if
    the columns are linearly dependent.

    >>> basis = orthogonalise(jnp.array([[3.0], [4.0]]))
    >>> bool(jnp.allclose(jnp.abs(basis), jnp.array([[0.6], [0.8]])))
    True
    """
    # QR is not available in 16-bit precision.
    wide = x.astype(jnp.float32) if x.dtype.itemsize < 4 else x
    return jnp.linalg.qr(wide)[0].astype(x.dtype)


def _matrices(message: Message) -> Matrices:
    return [as_matrix(x) for x in jax.tree.leaves(message) if _is_matrix(x)]


def _is_matrix(x: jax.Array) -> bool:
    return x.ndim >= 2 and x.size > 0


def _own_q(matrices: Matrices, basis: Matrices) -> Matrices:
    return _products([x.T for x in matrices], basis)


def _times(basis: Matrices, q: Matrices) -> Matrices:
    return _products(basis, [x.T for x in q])


def _products(left: Matrices, right: Matrices) -> Matrices:
    # GPUs and TPUs round factors by default. What that changes would be lost for good.
    highest = functools.partial(jnp.matmul, precision="highest")
    return [highest(a, b) for a, b in zip(left, right, strict=True)]
