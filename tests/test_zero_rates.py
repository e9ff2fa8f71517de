"""Velocities that are divided by a learning rate, where that rate is 0."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from olsgd_jax import model_of, overlap_local_sgd, slowmo
from tests import helpers, reference

STEPS = 12
SCHEDULES = {
    "warm-up from 0": optax.warmup_cosine_decay_schedule(0.0, 0.1, 5, STEPS, 0.01),
    "cosine decay to 0": optax.cosine_decay_schedule(0.1, 7),
    # So that velocities which are not 0 meet a rate of 0, and go on after it.
    "steps of 0 in between": lambda k: jnp.where(k // 2 % 3 == 1, 0.0, 0.1),
}
TABLES = {
    name: np.array([float(schedule(k)) for k in range(STEPS)])
    for name, schedule in SCHEDULES.items()
}


def library_strategies(schedule):
    return {
        "slowmo": slowmo(0.6, 0.9, learning_rate=schedule),
        "overlap_local_sgd": overlap_local_sgd(0.6, 0.7, learning_rate=schedule),
    }


def reference_steps(strategy, problem, tau, rate):
    if strategy == "slowmo":
        return list(reference.slowmo(problem, tau, beta=0.6, s=0.9, rate=rate))
    return list(
        reference.overlap_local_sgd(problem, tau, alpha=0.6, beta=0.7, rate=rate)
    )


OPTIMIZERS = {
    "sgd": reference.sgd,
    "nesterov": functools.partial(reference.nesterov, momentum=0.9, weight_decay=1e-2),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("tau", [1, 3])
@pytest.mark.parametrize("name", SCHEDULES)
def test_rounds_with_rates_of_zero_follow_the_loops(name, tau, optimizer, subtests):
    table = TABLES[name]
    assert 0.0 in table
    rate, schedule = table.__getitem__, lambda k: jnp.asarray(table)[k]
    strategies = library_strategies(schedule)

    def problem():
        return reference.Problem(2, STEPS, OPTIMIZERS[optimizer](rate), helpers.SIZE)

    library = helpers.optimizers(schedule)[optimizer]
    rounds = list(helpers.run_rounds(problem(), library, strategies, tau))
    for strategy in strategies:
        with subtests.test(strategy):
            steps = reference_steps(strategy, problem(), tau, rate)
            assert np.isfinite([X for X, _ in steps]).all()
            models = [problem().models(), *(X for X, _ in steps)]
            for r, (states, records) in enumerate(rounds):
                first, last = r * tau, (r + 1) * tau - 1
                # The loss of a step pins the model that the step began with.
                losses = [
                    problem().losses(models[k], k) for k in range(first, last + 1)
                ]
                np.testing.assert_allclose(records[strategy].loss.T, losses, rtol=1e-12)
                X, z = steps[last]
                state = states[strategy]
                np.testing.assert_allclose(helpers.as_flat(state.params), X, atol=1e-12)
                if z is not None:
                    anchors = helpers.as_flat(state.strategy_state.anchor)
                    np.testing.assert_allclose(anchors, [z, z], atol=1e-12)


def test_a_rate_of_zero_only_decays_the_velocity():
    # Worker models -1 and 5, both pulled to their mean 2: the anchor jumps there.
    strategy = overlap_local_sgd(0.5, 0.25, learning_rate=lambda k: jnp.zeros(()))
    state = strategy.init(jnp.array(0.0))._replace(velocity=jnp.array(8.0))
    end, mean = jnp.array(5.0), jnp.array(2.0)
    params, state = strategy.mix(end, end, mean, state)
    assert (params, state.anchor, state.velocity) == (3.5, 2.0, 2.0)


@pytest.mark.parametrize("rate", [0.0, 0.25])
@pytest.mark.parametrize("name", ["slowmo", "overlap_local_sgd"])
def test_without_gradients_a_rate_leaves_the_virtual_model(name, rate):
    strategy = library_strategies(lambda k: jnp.full(jnp.shape(k), rate))[name]
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(4, 3)))
    if name == "slowmo":  # whose workers have one model between rounds
        x = jnp.tile(x[:1], (4, 1))
    state = jax.vmap(strategy.init)(x)
    state = state._replace(velocity=jnp.asarray(rng.normal(size=(1, 3))) + 0 * x)
    before = strategy.virtual(x.mean(axis=0), jax.tree.map(lambda s: s[0], state))
    mean = jnp.tile(x.mean(axis=0), (4, 1))
    after, state = jax.vmap(strategy.mix)(x, x, mean, state)
    virtual = strategy.virtual(after.mean(axis=0), jax.tree.map(lambda s: s[0], state))
    np.testing.assert_allclose(virtual, before, atol=1e-12)
    if rate == 0:
        np.testing.assert_allclose(virtual, x.mean(axis=0), atol=1e-12)


def test_every_model_of_a_warm_up_is_finite():
    schedule = SCHEDULES["warm-up from 0"]
    problem = reference.Problem(2, 4, None, helpers.SIZE)
    strategies = library_strategies(schedule)
    with jax.numpy_dtype_promotion("standard"):  # which optax's schedules need
        *_, (states, _) = helpers.run_rounds(
            problem, optax.sgd(schedule), strategies, tau=2
        )
        found = [
            model_of(states[name], strategy, which)[0]
            for name, strategy in strategies.items()
            for which in ("worker", "consensus", "virtual")
        ]
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(found))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.float64])
def test_other_rates_give_the_bits_of_the_plain_equations(dtype):
    rng = np.random.default_rng(0)
    z, v, mean = jnp.asarray(rng.normal(size=(3, 1000)), dtype)
    rate = jnp.float32(0.03)
    strategy = overlap_local_sgd(0.6, 0.7, learning_rate=lambda k: rate)
    state = strategy.init(z)._replace(velocity=v)

    @jax.jit
    def plain(z, v, mean):
        velocity = jnp.asarray(1 / rate, dtype) * (mean - z) + jnp.asarray(0.7) * v
        return z + jnp.asarray(rate, dtype) * velocity, velocity

    with jax.numpy_dtype_promotion("standard"), jax.enable_x64(dtype == jnp.float64):
        _, mixed = jax.jit(strategy.mix)(z, z, mean, state)
        anchor, velocity = plain(z, v, mean)
    np.testing.assert_array_equal(mixed.anchor, anchor)
    np.testing.assert_array_equal(mixed.velocity, velocity)


@pytest.mark.parametrize("build", [slowmo, overlap_local_sgd])
def test_a_rate_whose_inverse_overflows_counts_as_zero(build):
    # 1 / 1e-6 is above the largest float16, 65504.
    strategy = build(0.5, learning_rate=lambda k: jnp.float32(1e-6))
    start, end = jnp.zeros(2, jnp.float16), jnp.ones(2, jnp.float16)
    with jax.numpy_dtype_promotion("standard"), jax.enable_x64(False):
        params, state = strategy.mix(start, end, end, strategy.init(start))
    np.testing.assert_array_equal(params, end)
    np.testing.assert_array_equal(state.velocity, [0, 0])
