"""Every strategy against plain NumPy loops, at every local step, in float64."""

import contextlib
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from olsgd_jax import STRATEGIES, distribute, low_rank, to_workers
from olsgd_jax.training import Config, build_strategy
from olsgd_jax.training.components import build_reduction
from tests import helpers, reference

ROUNDS = 4


# The rate falls at every step and is halved in the middle of a round.
RATES = np.where(np.arange(ROUNDS * 8) < 5, 0.1, 0.05) * 0.98 ** np.arange(ROUNDS * 8)
rate = RATES.__getitem__


def schedule(k):
    return jnp.asarray(RATES)[k]


def first_q(rank):
    state = low_rank(rank).init(helpers.as_tree(np.zeros(helpers.SIZE)))
    return np.asarray(state.q[0])


def fragment_of(num_fragments):
    """The fragment of every number of a flat model: its part of its array's rows."""
    fragments = []
    for num_rows, *columns in (helpers.VECTOR, helpers.MATRIX):
        of_rows = np.arange(num_rows) // -(-num_rows // num_fragments)
        fragments.append(np.repeat(of_rows, np.prod(columns, dtype=int)))
    return np.concatenate(fragments)


# What loops are given that comes from here, beside what their cases say.
GIVEN = {
    "powersgd": {"shape": helpers.MATRIX, "q": first_q(2)},
    "streaming": {"fragment_of": fragment_of(3)},
    "streaming_ends": {"fragment_of": fragment_of(3)},
}


def test_every_strategy_has_its_loop():
    assert {case.strategy for case in reference.CASES.values()} == STRATEGIES.keys()


OPTIMIZERS = {
    "sgd": lambda: reference.sgd(rate),
    "nesterov": lambda: reference.nesterov(rate, 0.9, 1e-2),
    "adamw": lambda: reference.adamw(rate, 1e-2),
}


def promotion_for(optimizer):
    """optax's Adam divides by powers of a whole number, which strict jax refuses."""
    if optimizer == "adamw":
        return jax.numpy_dtype_promotion("standard")
    return contextlib.nullcontext()


def reference_run(strategy, optimizer, m, tau):
    case = reference.CASES[strategy]
    arguments = {**case.arguments, **GIVEN.get(strategy, {})}
    if case.is_rated:
        arguments["rate"] = rate
    problem = reference.Problem(m, ROUNDS * tau, OPTIMIZERS[optimizer](), helpers.SIZE)
    return problem, list(case.loop(problem, tau, **arguments))


MAPPINGS = ["vmap", "pmap", "shard_map"]


def library_pairs(m):
    """The library's strategy and reduction of every case."""

    def build(case):
        config = Config(
            strategy=case.strategy,
            strategy_args=case.strategy_args,
            rated_velocity=case.is_rated,
            reduction=case.reduction,
            reduction_args=case.reduction_args,
            num_workers=m,
        )
        return build_strategy(config, schedule), build_reduction(config)

    return {name: build(case) for name, case in reference.CASES.items()}


@functools.cache
def first_states(m, optimizer, mapping):
    problem = reference.Problem(m, 1, None, helpers.SIZE)
    library = helpers.optimizers(schedule)[optimizer]
    return helpers.first_states(problem, library, library_pairs(m), mapping)


def settings(sizes):
    """Each mapping with each optimizer and each size, each optimizer with each size."""
    return [
        (*size, optimizer, MAPPINGS[(i + j) % 3])
        for i, size in enumerate(sizes)
        for j, optimizer in enumerate(OPTIMIZERS)
    ]


SIZES = list(itertools.product([1, 2, 3, 8], [1, 2, 4, 16]))


# All strategies of a test share one compilation, or the suite would take an hour.
@pytest.mark.parametrize(("tau", "m", "optimizer", "mapping"), settings(SIZES))
def test_the_rounds_follow_the_papers(tau, m, optimizer, mapping, subtests):
    problem = reference.Problem(m, ROUNDS * tau, None, helpers.SIZE)
    pairs, library = library_pairs(m), helpers.optimizers(schedule)[optimizer]
    states = first_states(m, optimizer, mapping)
    with promotion_for(optimizer):
        rounds = list(helpers.run_rounds(problem, library, pairs, tau, mapping, states))
    for strategy in reference.CASES:
        with subtests.test(strategy):
            problem, steps = reference_run(strategy, optimizer, m, tau)
            models = [problem.models(), *(X for X, _ in steps)]
            for r, (states, records) in enumerate(rounds):
                # The loss of a step pins the model that the step began with.
                losses = [problem.losses(models[k], k) for k in steps_of(r, tau)]
                np.testing.assert_allclose(records[strategy].loss.T, losses, rtol=1e-12)
                assert_follows(states[strategy], *steps[steps_of(r, tau)[-1]])


def steps_of(r, tau):
    return range(r * tau, (r + 1) * tau)


def assert_follows(state, X, z):
    np.testing.assert_allclose(helpers.as_flat(state.params), X, atol=1e-12)
    if z is not None:
        anchors = helpers.as_flat(state.strategy_state.anchor)
        np.testing.assert_allclose(anchors, np.tile(z, (len(X), 1)), atol=1e-12)


def on_user_axis(train_step, mapping, m):
    """Maps a step as a user would, over an axis of the user's own name."""
    if mapping == "vmap":
        return jax.jit(jax.vmap(train_step, axis_name="batch"))
    if mapping == "pmap":
        return jax.pmap(train_step, axis_name="batch", devices=jax.devices()[:m])
    mesh = jax.make_mesh((m,), ("batch",), axis_types=(jax.sharding.AxisType.Auto,))

    def one(*trees):
        trees = jax.tree.map(lambda x: x[0], trees)
        return jax.tree.map(lambda x: x[None], train_step(*trees))

    spec = jax.sharding.PartitionSpec("batch")
    return jax.jit(jax.shard_map(one, mesh=mesh, in_specs=spec, out_specs=spec))


def run_steps(problem, inner, pairs, tau, mapping):
    """Yields the params of all pairs from a user's own loop, after every step."""
    grad = jax.grad(helpers.quadratic_loss(problem.curvature))
    txs = {
        name: distribute(inner, strategy, tau, axis_name="batch", reduction=reduction)
        for name, (strategy, reduction) in pairs.items()
    }

    def train_step(states, centre):
        def one(tx, params, opt_state):
            updates, opt_state = tx.update(grad(params, centre), opt_state, params)
            return optax.apply_updates(params, updates), opt_state

        return {name: one(tx, *states[name]) for name, tx in txs.items()}

    start, m = helpers.as_tree(problem.start), problem.num_workers
    states = to_workers({n: (start, tx.init(start)) for n, tx in txs.items()}, m)
    step = on_user_axis(train_step, mapping, m)
    for k in range(problem.num_steps):
        states = step(states, helpers.as_tree(problem.centres[:, k]))
        yield {name: helpers.as_flat(params) for name, (params, _) in states.items()}


@pytest.mark.parametrize(
    ("tau", "m", "optimizer", "mapping"), settings([(1, 4), (3, 2), (8, 16)])
)
def test_the_optax_faces_follow_the_papers(tau, m, optimizer, mapping, subtests):
    problem = reference.Problem(m, ROUNDS * tau, None, helpers.SIZE)
    pairs, library = library_pairs(m), helpers.optimizers(schedule)[optimizer]
    with promotion_for(optimizer):
        params = list(run_steps(problem, library, pairs, tau, mapping))
    for strategy in reference.CASES:
        with subtests.test(strategy):
            _, steps = reference_run(strategy, optimizer, m, tau)
            for k, (X, _) in enumerate(steps):
                np.testing.assert_allclose(params[k][strategy], X, atol=1e-12)
