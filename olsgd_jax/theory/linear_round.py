"""A round on a quadratic as a matrix, computed from the strategy's own code.

On the loss h x² / 2 a round of SGD, with or without momentum, is linear in the state s
of a worker: its model, its optimizer's state and its strategy's state. With the
curvature h and the sync period τ,

    local step    s ← (M + h G) s             M: without a gradient, G: what it adds
    round         s ← (A + B (M + h G)^τ) s   A, B: the mix, of start and end

`reduce_grads`, `update` and `mix` are applied to unit vectors, which gives the columns
of M, G, A and B. None of them depends on h or τ. Where a strategy takes turns, every
turn has its own A and B, and one matrix is the product of all turns.

The state of m workers is what they have in common, plus deviations that sum to 0. A
round maps the two independently:

    consensus       all workers are equal, so a mean is the worker's own message
    disagreement    a mean is 0, as is all that workers share, and a worker's own state
                    (see `absence`) evolves by itself
"""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Bool, Float

from olsgd_jax.round.optimizer_checks import check_optimizer
from olsgd_jax.round.optimizer_step import StepLoss, apply_optimizer
from olsgd_jax.strategies.base import Strategy, check_strategy
from olsgd_jax.types import ArrayTree, Message, Params, StrategyState

# One number gives the matrices. Only a matrix shows that Muon, say, is not linear.
_NUMBER, _MATRIX = (), (16, 16)
_MOST_TURNS = 64

Curvatures: TypeAlias = Float[np.ndarray, "*curvatures"]
Vector: TypeAlias = Float[jax.Array, " _"]
_Average: TypeAlias = Callable[[Message], Message]


class LinearRound(NamedTuple):
    """A round of equal workers, or of workers that differ, on a quadratic.

    A strategy that takes turns has a round for every turn.
    """

    without_gradient: Float[np.ndarray, "turns rows rows"]  # M
    of_gradient: Float[np.ndarray, "turns rows rows"]  # G
    of_start: Float[np.ndarray, "turns rows rows"]  # A
    of_end: Float[np.ndarray, "turns rows rows"]  # B
    differs: Bool[np.ndarray, " rows"]  # the numbers that are not 0 between rounds

    def matrix(
        self, sync_period: int, curvature: Curvatures
    ) -> Float[np.ndarray, "*curvatures numbers numbers"]:
        """Gives the matrix of a round, or of all turns, for every curvature."""
        rows = _whole_matrix(self, sync_period, curvature)[..., self.differs, :]
        return rows[..., self.differs]

    @property
    def num_turns(self) -> int:
        """The number of rounds that a matrix stands for."""
        return len(self.of_start)


def _whole_matrix(
    run: LinearRound, sync_period: int, curvature: Curvatures
) -> Float[np.ndarray, "*curvatures rows rows"]:
    whole = np.eye(run.of_start.shape[-1])
    with np.errstate(over="ignore", invalid="ignore"):
        for without, of_gradient, start, end in zip(*run[:4], strict=True):
            step = without + curvature[..., None, None] * of_gradient
            whole = (start + end @ np.linalg.matrix_power(step, sync_period)) @ whole
    return whole


class LinearRounds(NamedTuple):
    """The two maps that a round of several workers splits into."""

    consensus: LinearRound
    disagreement: LinearRound


def linear_rounds(
    strategy: Strategy, optimizer: optax.GradientTransformation
) -> LinearRounds:
    """Gives the round of equal workers, and that of a worker's deviation from them.

    >>> import numpy as np, optax
    >>> from olsgd_jax import cocod_sgd
    >>> rounds = linear_rounds(cocod_sgd(), optax.sgd(0.1))
    >>> for x in rounds:  # (1 − γ h)^τ, and (1 − γ h)^τ − 1
    ...     print(x.matrix(sync_period=2, curvature=np.array(1.0)).round(6))
    [[0.81]]
    [[-0.19]]
    """
    check_strategy(strategy)
    check_optimizer(optimizer)
    # A user's strict promotion would refuse numbers that optax itself mixes.
    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):
        _check_linear(strategy, optimizer)
        of_equal, own = _round_matrices(strategy, optimizer, lambda tree: tree)
        of_one, _ = _round_matrices(strategy, optimizer, optax.tree.zeros_like)
    consensus = LinearRound(*of_equal, differs=np.ones_like(own))
    disagreement = LinearRound(*of_one, differs=own)
    reaches = _whole_matrix(disagreement, 1, np.array(1.0))[np.ix_(~own, own)]
    if np.abs(reaches).max(initial=0.0) > 1e-9:
        raise ValueError(
            f"own of {strategy.name} must name every field of its state that differs "
            f"between workers, got {strategy.own}: the deviation of one worker reaches "
            "a field that all workers are said to share"
        )
    return LinearRounds(consensus, disagreement)


class _OnVectors(NamedTuple):
    """A round's two halves as functions of vectors."""

    # numbers of the state, gradient -> numbers after the step
    step: Callable[[Vector, Vector], Vector]
    # numbers at the start, numbers at the end -> numbers after the mix
    mix: Callable[[Vector, Vector], Vector]
    params: Callable[[Vector], Vector]  # numbers of the state -> those of the model
    size: int
    own: Bool[np.ndarray, " numbers"]  # which of them are a worker's own
    counters: list[np.ndarray]  # all counters after the mix


def _on_vectors(
    strategy: Strategy,
    optimizer: optax.GradientTransformation,
    mean: _Average,
    shape: tuple[int, ...],
    counters: list[np.ndarray] | None = None,
) -> _OnVectors:
    model = jnp.zeros(shape)
    initial = model, optimizer.init(model), strategy.init(model)
    leaves, structure = jax.tree.flatten(initial)
    # The others are counters, which stay as they are in a round.
    is_number = [jnp.issubdtype(x.dtype, jnp.inexact) for x in leaves]
    if counters is not None:
        given = iter(counters)
        leaves = [
            x if number else jnp.asarray(next(given))
            for x, number in zip(leaves, is_number, strict=True)
        ]

    def numbers_of(tree: ArrayTree) -> list[jax.Array]:
        leaves = jax.tree.leaves(tree)
        return [x for x, number in zip(leaves, is_number, strict=True) if number]

    zeros, from_vector = ravel_pytree(numbers_of(initial))

    def to_vector(*state: ArrayTree) -> Vector:
        return ravel_pytree(numbers_of(state))[0]

    def to_state(vector: Vector) -> ArrayTree:
        numbers = iter(from_vector(vector))
        parts = [
            next(numbers) if number else x
            for x, number in zip(leaves, is_number, strict=True)
        ]
        return jax.tree.unflatten(structure, parts)

    def step(vector: Vector, grads: Vector) -> Vector:
        params, opt_state, state = to_state(vector)
        grads = grads.reshape(shape)
        if strategy.mean_of == "gradients":
            grads = mean(grads)
        grads, state = strategy.reduce_grads(grads, state)
        loss = StepLoss(grads)
        params, opt_state = apply_optimizer(optimizer, params, opt_state, loss)
        return to_vector(params, opt_state, state)

    def mixed(start: Vector, end: Vector) -> tuple[Params, ArrayTree, StrategyState]:
        begun, _, begun_state = to_state(start)
        params, opt_state, state = to_state(end)
        match strategy.mean_of:
            case "start":
                arrived = mean(strategy.message(begun, begun_state))
            case "end":
                arrived = mean(strategy.message(params, state))
            case "gradients":
                arrived = params
        params, state = strategy.mix(begun, params, arrived, state)
        return params, opt_state, state

    def mix(start: Vector, end: Vector) -> Vector:
        return to_vector(*mixed(start, end))

    def params(vector: Vector) -> Vector:
        return to_state(vector)[0].ravel()

    own = np.asarray(ravel_pytree(numbers_of(_own(strategy, *initial)))[0])
    after = jax.tree.leaves(mixed(zeros, zeros))
    counted = [
        np.asarray(x) for x, is_n in zip(after, is_number, strict=True) if not is_n
    ]
    return _OnVectors(step, mix, params, zeros.size, own, counted)


def _own(
    strategy: Strategy, params: Params, opt_state: ArrayTree, state: StrategyState
) -> ArrayTree:
    """Says of each number of a state whether it is a worker's own."""

    def all_of(tree: ArrayTree, is_own: bool) -> ArrayTree:
        return jax.tree.map(lambda x: jnp.full(jnp.shape(x), is_own), tree)

    own = all_of(state, False)
    if strategy.own:
        fields = {name: all_of(getattr(state, name), True) for name in strategy.own}
        own = own._replace(**fields)
    return (
        all_of(params, "params" not in strategy.common),
        all_of(opt_state, "opt_state" not in strategy.common),
        own,
    )


def _round_matrices(
    strategy: Strategy,
    optimizer: optax.GradientTransformation,
    mean: _Average,
) -> tuple[list[np.ndarray], np.ndarray]:
    """Gives M, G, A and B of every turn, and which numbers are a worker's own."""
    turns: list[tuple[np.ndarray, ...]] = []
    run = _on_vectors(strategy, optimizer, mean, _NUMBER)
    first = run.counters
    for _ in range(_MOST_TURNS):
        turns.append(_turn_matrices(run))
        counters = run.counters
        run = _on_vectors(strategy, optimizer, mean, _NUMBER, counters)
        if all(map(np.array_equal, run.counters, first)):
            break
    else:
        raise ValueError(
            f"rounds of {strategy.name} must repeat after at most {_MOST_TURNS}, but a "
            "counter in its state goes on; take fewer fragments, and an outer "
            "optimizer of constant rate"
        )
    return [np.stack(x) for x in zip(*turns, strict=True)], run.own


def _turn_matrices(run: _OnVectors) -> tuple[np.ndarray, ...]:
    unit, zeros, no_gradient = jnp.eye(run.size), jnp.zeros(run.size), jnp.zeros(1)
    rows = (
        jax.vmap(lambda x: run.step(x, no_gradient))(unit),
        jax.vmap(lambda x: run.step(zeros, run.params(x)))(unit),
        jax.vmap(lambda x: run.mix(x, zeros))(unit),
        jax.vmap(lambda x: run.mix(zeros, x))(unit),
    )
    return tuple(np.asarray(x).T for x in rows)


def _check_linear(strategy: Strategy, optimizer: optax.GradientTransformation) -> None:
    """Raises unless the local step and the mix of equal workers are linear."""
    run = _on_vectors(strategy, optimizer, lambda tree: tree, _MATRIX)
    rng = np.random.default_rng(0)
    num_grads = run.params(jnp.zeros(run.size)).size
    for name, function, size in (
        ("local step", run.step, num_grads),
        ("mix", run.mix, run.size),
    ):
        one, other = (
            [jnp.asarray(rng.normal(size=x)) for x in (run.size, size)]
            for _ in range(2)
        )
        for scale in (1.0, 1e6):  # the large one is clipped, if anything is
            expected = function(*one) + scale * function(*other)
            both = [x + scale * y for x, y in zip(one, other, strict=True)]
            error = jnp.abs(function(*both) - expected).max()
            if not error <= 1e-6 * jnp.abs(expected).max():
                raise ValueError(
                    f"strategy and optimizer must be linear, but the {name} of "
                    f"{strategy.name} is not with these; use SGD, with or without "
                    "momentum, inside and outside"
                )
