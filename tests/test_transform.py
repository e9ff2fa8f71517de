"""The optax face: in step with the round, kind to its caller."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from olsgd_jax import (
    WORKERS,
    cocod_sgd,
    distribute,
    easgd,
    init_state,
    local_sgd,
    make_round,
    overlap_local_sgd,
    payload_bytes,
    plain_loss,
    sync_sgd,
    to_workers,
)
from tests import helpers

OPTIMIZER = optax.sgd(0.1, momentum=0.9)
STRATEGY = overlap_local_sgd(0.6, 0.7)


def loss(x, centre):
    return jnp.sum((x - centre) ** 2) / 2


def make_step(tx):
    def train_step(params, opt_state, centre):
        grads = jax.grad(loss)(params, centre)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state

    return jax.vmap(train_step, axis_name="workers")


def start(tx, m=4):
    x = jnp.arange(3.0)
    return to_workers((x, tx.init(x)), m)


def test_the_face_and_the_round_hold_the_same_models_and_the_same_state():
    tau, m = 3, 4
    centres = jax.random.normal(jax.random.key(0), (m, 4 * tau, 3))
    tx = distribute(OPTIMIZER, STRATEGY, tau)
    params, opt_state = start(tx, m)
    run = make_round(plain_loss(loss), OPTIMIZER, STRATEGY, sync_period=tau)
    state = init_state(jnp.arange(3.0), OPTIMIZER, STRATEGY, num_workers=m)
    for r in range(4):
        batches = centres[:, r * tau : (r + 1) * tau]
        for k in range(tau):
            params, opt_state = make_step(tx)(params, opt_state, batches[:, k])
        state, _ = run(state, batches)
        pairs = [
            (params, state.params),
            (opt_state.opt_state, state.opt_state),
            (opt_state.strategy_state, state.strategy_state),
        ]
        for ours, rounds in pairs:
            jax.tree.map(
                lambda a, b: np.testing.assert_allclose(a, b, atol=1e-12), ours, rounds
            )


def test_between_mixes_the_updates_are_the_optimizers_own_bits():
    tx = distribute(OPTIMIZER, STRATEGY, sync_period=5)
    params, opt_state = start(tx)
    plain, plain_state = start(OPTIMIZER)
    for _ in range(4):
        params, opt_state = make_step(tx)(params, opt_state, jnp.ones((4, 3)))
        plain, plain_state = make_step(OPTIMIZER)(plain, plain_state, jnp.ones((4, 3)))
        np.testing.assert_array_equal(params, plain)


def test_a_round_starts_from_what_the_caller_made_of_the_params():
    # The caller doubles the params between rounds; their mean has to follow.
    tx = distribute(optax.sgd(0.0), overlap_local_sgd(1.0), sync_period=1)
    params, opt_state = start(tx, m=2)
    params = 2 * params
    params, _ = make_step(tx)(params, opt_state, jnp.zeros((2, 3)))
    np.testing.assert_allclose(params, [[0.0, 2.0, 4.0]] * 2)


def test_strategies_that_average_gradients_keep_no_copy_of_the_params():
    state = distribute(OPTIMIZER, sync_sgd(), sync_period=4).init(jnp.zeros(3))
    assert state.start == ()


def test_extra_arguments_reach_the_optimizer():
    seen = []

    def update(updates, state, params=None, *, value, **extra):
        seen.append(value)
        return updates, state

    inner = optax.GradientTransformationExtraArgs(lambda p: (), update)
    tx = distribute(inner, sync_sgd(), sync_period=1)
    x = jnp.zeros(3)

    def step(x):
        return tx.update(x, tx.init(x), x, value=7.0)[0]

    jax.vmap(step, axis_name="workers")(x[None])
    assert seen == [7.0]


def test_the_transformation_can_be_chained():
    tx = optax.chain(optax.clip(0.5), distribute(OPTIMIZER, STRATEGY, sync_period=2))
    params, opt_state = start(tx)
    for _ in range(4):
        params, opt_state = make_step(tx)(params, opt_state, jnp.ones((4, 3)))
    assert np.all(np.isfinite(params))


def test_the_state_can_be_donated_with_the_params():
    tx = distribute(OPTIMIZER, STRATEGY, sync_period=2)
    step = jax.jit(make_step(tx), donate_argnums=(0, 1))
    params = to_workers(jnp.arange(3.0), 4)
    opt_state = jax.vmap(tx.init)(params)  # nothing of it may be params itself
    for _ in range(3):
        params, opt_state = step(params, opt_state, jnp.ones((4, 3)))
    assert np.all(np.isfinite(params))


@pytest.mark.parametrize("strategy", [STRATEGY, cocod_sgd()], ids=lambda x: x.name)
@pytest.mark.parametrize("tau", [1, 2, 5])
def test_a_streamed_mean_gives_the_same_bits(strategy, tau):
    plain = distribute(OPTIMIZER, strategy, tau)
    streamed = distribute(OPTIMIZER, strategy, tau, stream=True)
    ours, others = start(streamed), start(plain)
    step, other_step = jax.jit(make_step(streamed)), jax.jit(make_step(plain))
    for k in range(2 * tau + 1):
        centres = jax.random.normal(jax.random.key(k), (4, 3))
        ours, others = step(*ours, centres), other_step(*others, centres)
        np.testing.assert_array_equal(ours[0], others[0])


def test_a_streamed_piece_and_the_step_beside_it_do_not_wait_for_each_other():
    tx = distribute(OPTIMIZER, STRATEGY, sync_period=4, stream=True)
    x = jnp.arange(3.0)

    def train_step(params, opt_state):
        grads = jnp.cos(params)  # stands for the forward and backward pass
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state

    traced = jax.make_jaxpr(train_step, axis_env=[(WORKERS, 4)])(x, tx.init(x))
    assert "cos" not in helpers.upstream_of("psum", traced.jaxpr)
    assert "psum" not in helpers.upstream_of("cos", traced.jaxpr)
    one_number = payload_bytes(
        train_step, *to_workers((x, tx.init(x)), 4), num_workers=4
    )
    assert one_number == x.dtype.itemsize  # of three, in four pieces


def test_streaming_what_is_not_there_yet_is_refused():
    with pytest.raises(ValueError, match="stream must be False under local_sgd"):
        distribute(OPTIMIZER, local_sgd(), sync_period=2, stream=True)


def test_an_update_without_params_is_refused():
    tx = distribute(OPTIMIZER, STRATEGY, sync_period=2)
    state = tx.init(jnp.zeros(3))
    with pytest.raises(ValueError, match="params must be passed to update: tx.update"):
        tx.update(jnp.zeros(3), state)


def test_a_state_of_another_transformation_is_refused():
    tx = distribute(OPTIMIZER, STRATEGY, sync_period=2)
    x = jnp.zeros(3)
    with pytest.raises(TypeError, match="state must be made by this transformation's"):
        tx.update(x, OPTIMIZER.init(x), x)


def test_a_strategy_built_for_another_number_of_workers_is_refused():
    tx = distribute(OPTIMIZER, easgd(0.9, num_workers=4), sync_period=2)
    params, opt_state = start(tx, m=2)
    with pytest.raises(ValueError, match="easgd was built with num_workers=4, got 2"):
        make_step(tx)(params, opt_state, jnp.ones((2, 3)))


def test_a_call_outside_of_the_mapped_axis_is_refused():
    tx = distribute(OPTIMIZER, local_sgd(), sync_period=2)
    x = jnp.zeros(3)
    message = "update must run under pmap, shard_map or vmap over an axis 'workers'"
    with pytest.raises(ValueError, match=message):
        tx.update(x, tx.init(x), x)


def test_params_that_are_not_floating_point_are_refused():
    tx = distribute(OPTIMIZER, local_sgd(), sync_period=2)
    with pytest.raises(TypeError, match="params must be floating point, got int64"):
        tx.init({"steps": jnp.zeros((), jnp.int64)})


@pytest.mark.parametrize("tau", [0, -3])
def test_a_sync_period_below_one_is_refused(tau):
    with pytest.raises(ValueError, match=f"sync_period must be at least 1, got {tau}"):
        distribute(OPTIMIZER, local_sgd(), sync_period=tau)


def test_a_sync_period_that_is_no_whole_number_is_refused():
    with pytest.raises(TypeError, match="sync_period must be a whole number, got '4'"):
        inspect.unwrap(distribute)(OPTIMIZER, local_sgd(), sync_period="4")
