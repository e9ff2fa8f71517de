"""Every strategy against plain NumPy loops, at every local step, in float64."""

import contextlib
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from olsgd_jax import (
    cocod_sgd,
    distribute,
    easgd,
    local_sgd,
    overlap_local_sgd,
    powersgd,
    slowmo,
    sync_sgd,
    to_workers,
)
from tests import helpers, reference

ROUNDS = 4


# The rate falls at every step and is halved in the middle of a round.
RATES = np.where(np.arange(ROUNDS * 8) < 5, 0.1, 0.05) * 0.98 ** np.arange(ROUNDS * 8)
rate = RATES.__getitem__


def schedule(k):
    return jnp.asarray(RATES)[k]


def first_q(rank):
    strategy = powersgd(rank)
    return np.asarray(strategy.init(helpers.as_tree(np.zeros(helpers.SIZE))).q[0])


# Per strategy: the library's, given the number of workers, and the reference's loop.
STRATEGIES = {
    "sync_sgd": (lambda m: sync_sgd(), reference.sync_sgd, {}),
    "local_sgd": (lambda m: local_sgd(), reference.local_sgd, {}),
    "slowmo": (lambda m: slowmo(0.6, 0.9), reference.slowmo, {"beta": 0.6, "s": 0.9}),
    "slowmo_scaled": (
        lambda m: slowmo(0.6, 0.9, learning_rate=schedule),
        reference.slowmo,
        {"beta": 0.6, "s": 0.9, "rate": rate},
    ),
    "easgd": (lambda m: easgd(0.9, m), reference.easgd, {"moving_rate": 0.9}),
    "cocod_sgd": (lambda m: cocod_sgd(), reference.cocod_sgd, {}),
    "overlap": (
        lambda m: overlap_local_sgd(0.6),
        reference.overlap_local_sgd,
        {"alpha": 0.6, "beta": 0.0},
    ),
    "overlap_momentum": (
        lambda m: overlap_local_sgd(0.6, 0.7),
        reference.overlap_local_sgd,
        {"alpha": 0.6, "beta": 0.7},
    ),
    "overlap_scaled": (
        lambda m: overlap_local_sgd(0.6, 0.7, learning_rate=schedule),
        reference.overlap_local_sgd,
        {"alpha": 0.6, "beta": 0.7, "rate": rate},
    ),
    "powersgd": (
        lambda m: powersgd(2),
        reference.powersgd,
        {"rank": 2, "shape": helpers.MATRIX, "q": first_q(2)},
    ),
}
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
    _, loop, arguments = STRATEGIES[strategy]
    problem = reference.Problem(m, ROUNDS * tau, OPTIMIZERS[optimizer](), helpers.SIZE)
    return problem, list(loop(problem, tau, **arguments))


@functools.cache
def library_rounds(tau, m, optimizer, mapping):
    """All strategies' states and records, round by round, from one compilation."""
    problem = reference.Problem(m, ROUNDS * tau, None, helpers.SIZE)
    strategies = {name: build(m) for name, (build, _, _) in STRATEGIES.items()}
    library = helpers.optimizers(schedule)[optimizer]
    with promotion_for(optimizer):
        return list(helpers.run_rounds(problem, library, strategies, tau, mapping))


def groups(*values):
    """Keeps the tests that share a compilation in one process."""
    return [
        pytest.param(*group, marks=pytest.mark.xdist_group(str(group)))
        for group in itertools.product(*values)
    ]


MAPPINGS = ["vmap", "pmap", "shard_map"]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(
    ("tau", "m", "optimizer", "mapping"),
    groups([1, 2, 3, 8], [1, 2, 4, 16], OPTIMIZERS, MAPPINGS),
)
def test_the_round_follows_the_paper(strategy, tau, m, optimizer, mapping):
    problem, steps = reference_run(strategy, optimizer, m, tau)
    models = [problem.models(), *(X for X, _ in steps)]
    rounds = library_rounds(tau, m, optimizer, mapping)
    for r, (states, records) in enumerate(rounds):
        # The loss of a step pins the model that the step began with.
        for j, loss in enumerate(records[strategy].loss.T):
            k = r * tau + j
            np.testing.assert_allclose(loss, problem.losses(models[k], k), rtol=1e-12)
        X, z = steps[(r + 1) * tau - 1]
        state = states[strategy]
        np.testing.assert_allclose(helpers.as_flat(state.params), X, atol=1e-12)
        if z is not None:
            anchor = helpers.as_flat(state.strategy_state.anchor)
            np.testing.assert_allclose(anchor, np.tile(z, (m, 1)), atol=1e-12)


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


@functools.cache
def library_steps(tau, m, optimizer, mapping):
    """All strategies' params from a user's own loop, step by step."""
    problem = reference.Problem(m, ROUNDS * tau, None, helpers.SIZE)
    grad = jax.grad(helpers.quadratic_loss(problem.curvature))
    inner = helpers.optimizers(schedule)[optimizer]
    txs = {
        name: distribute(inner, build(m), tau, axis_name="batch")
        for name, (build, _, _) in STRATEGIES.items()
    }

    def train_step(states, centre):
        def one(tx, params, opt_state):
            updates, opt_state = tx.update(grad(params, centre), opt_state, params)
            return optax.apply_updates(params, updates), opt_state

        return {name: one(tx, *states[name]) for name, tx in txs.items()}

    start = helpers.as_tree(problem.start)
    states = to_workers({n: (start, tx.init(start)) for n, tx in txs.items()}, m)
    step = on_user_axis(train_step, mapping, m)
    with promotion_for(optimizer):
        steps = []
        for k in range(problem.num_steps):
            states = step(states, helpers.as_tree(problem.centres[:, k]))
            steps.append({n: helpers.as_flat(state[0]) for n, state in states.items()})
        return steps


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(
    ("tau", "m", "optimizer", "mapping"),
    groups([1, 3], [2, 4], OPTIMIZERS, MAPPINGS) + groups([8], [16], ["sgd"], MAPPINGS),
)
def test_the_optax_face_follows_the_paper(strategy, tau, m, optimizer, mapping):
    _, steps = reference_run(strategy, optimizer, m, tau)
    library = library_steps(tau, m, optimizer, mapping)
    for params, (X, _) in zip(library, steps, strict=True):
        np.testing.assert_allclose(params[strategy], X, atol=1e-12)
