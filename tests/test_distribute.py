"""The optax face: in step with the round, kind to its caller."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec as P

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
    slowmo,
    sync_sgd,
    to_workers,
    worker_mesh,
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


def test_a_strategy_that_was_not_built_is_refused():
    with pytest.raises(TypeError, match="strategy must be a built one"):
        inspect.unwrap(distribute)(OPTIMIZER, overlap_local_sgd, sync_period=2)
    with pytest.raises(TypeError, match="optimizer must be an optax optimizer"):
        inspect.unwrap(distribute)(optax.adam, STRATEGY, sync_period=2)


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
    message = "update must run under overlap_jit, pmap, shard_map or vmap over an axis"
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


DELAYED = [STRATEGY, overlap_local_sgd(0.6), cocod_sgd()]


def names_of(cases):
    return [f"{x.name}{i}" for i, x in enumerate(cases)]


@pytest.mark.parametrize("strategy", DELAYED, ids=names_of(DELAYED))
@pytest.mark.parametrize("tau", [1, 2, 5])
def test_a_delayed_mean_and_the_step_do_not_wait_for_each_other(strategy, tau):
    tx = distribute(OPTIMIZER, strategy, tau)
    x = jnp.arange(3.0)

    def train_step(params, opt_state):
        grads = jnp.cos(params)  # stands for the forward and backward pass
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state

    traced = jax.make_jaxpr(train_step, axis_env=[(WORKERS, 4)])(x, tx.init(x))
    assert "cos" not in helpers.upstream_of("psum", traced.jaxpr)
    assert "psum" not in helpers.upstream_of("cos", traced.jaxpr)
    sent = payload_bytes(train_step, *to_workers((x, tx.init(x)), 4), num_workers=4)
    numbers = {1: 3, 2: 2, 5: 2}[tau]  # of three; those of 5 fragments make 2 pairs
    assert sent == numbers * x.dtype.itemsize


def test_the_mean_of_a_blocking_strategy_needs_the_steps_updates():
    tx = distribute(OPTIMIZER, local_sgd(), 2)
    x = jnp.arange(3.0)

    def train_step(params, opt_state):
        return tx.update(jnp.cos(params), opt_state, params)

    traced = jax.make_jaxpr(train_step, axis_env=[(WORKERS, 4)])(x, tx.init(x))
    conditions = [x for x in traced.jaxpr.eqns if "psum" in str(x.params)]
    assert [x.primitive.name for x in conditions] == ["cond"]


def models_in(tree, params):
    size = sum(x.size for x in jax.tree.leaves(params))
    return sum(x.size for x in jax.tree.leaves(tree)) / size


@pytest.mark.parametrize(
    ("strategy", "models"),
    [(STRATEGY, 3), (cocod_sgd(), 2), (local_sgd(), 0), (slowmo(0.5), 2)]
    + [(easgd(0.5, 4), 1), (sync_sgd(), 0)],
    ids=lambda x: getattr(x, "name", None),
)
def test_a_worker_carries_no_more_models_than_the_mix_needs(strategy, models):
    params = {"w": jnp.zeros((64, 128))}
    state = distribute(OPTIMIZER, strategy, sync_period=4).init(params)
    beyond = models_in(state, params) - models_in(OPTIMIZER.init(params), params)
    assert beyond == pytest.approx(models, abs=0.01)


@pytest.mark.parametrize("strategy", [STRATEGY, local_sgd()], ids=lambda x: x.name)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_low_precision_params_take_float32_updates(strategy, dtype):
    # Adam with float32 moments gives float32 updates for params of any dtype.
    optimizer = optax.adam(0.1, mu_dtype=jnp.float32)
    tx, tau, m = distribute(optimizer, strategy, 2), 2, 2
    x = jnp.arange(3.0).astype(dtype)
    with jax.numpy_dtype_promotion("standard"):
        ours = to_workers((x, tx.init(x)), m)
        round_loss = plain_loss(lambda x, c: jnp.sum((x - c.astype(x.dtype)) ** 2) / 2)
        run = make_round(round_loss, optimizer, strategy, sync_period=tau)
        state = init_state(x, optimizer, strategy, num_workers=m)
        centres = jax.random.normal(jax.random.key(0), (m, 3 * tau, 3)).astype(dtype)

        def train_step(params, opt_state, centre):
            grads = jax.grad(lambda x: jnp.sum((x - centre) ** 2) / 2)(params)
            updates, opt_state = tx.update(grads, opt_state, params)
            return optax.apply_updates(params, updates), opt_state

        step = jax.vmap(train_step, axis_name="workers")
        for r in range(3):
            batches = centres[:, r * tau : (r + 1) * tau]
            for k in range(tau):
                ours = step(*ours, batches[:, k])
            state, _ = run(state, batches)
            assert ours[0].dtype == dtype
            # The face adds mixed - params in float32, the round hands mixed over.
            np.testing.assert_allclose(
                np.float32(ours[0]), np.float32(state.params), rtol=2**-6, atol=1e-2
            )


def sharded(tx, specs, **options):
    def train_step(params, opt_state, centre):
        params, opt_state, centre = jax.tree.map(
            lambda x: x[0] if x.ndim and x.shape[0] == 1 else x,
            (params, opt_state, centre),
        )
        grads = jax.grad(loss)(params, centre)
        if options.get("averaged"):
            grads = jax.lax.pmean(grads, WORKERS)
        updates, _ = tx.update(grads, opt_state, params)
        return updates[None]

    return jax.shard_map(
        train_step, mesh=worker_mesh(4), in_specs=specs, out_specs=P(WORKERS)
    )


def test_replicated_params_under_shard_map_are_refused():
    # shard_map would sum their gradients over the workers without a word.
    tx = distribute(OPTIMIZER, STRATEGY, sync_period=2)
    x = jnp.arange(3.0)
    step = sharded(tx, (P(), P(), P(WORKERS)))
    with pytest.raises(ValueError, match="params must be each worker's own"):
        step(x, tx.init(x), jnp.ones((4, 3)))


def test_averaged_gradients_under_shard_map_are_refused():
    tx = distribute(OPTIMIZER, STRATEGY, sync_period=2)
    params, opt_state = start(tx)
    step = sharded(tx, P(WORKERS), averaged=True)
    with pytest.raises(ValueError, match="gradients must be each worker's own"):
        step(params, opt_state, jnp.ones((4, 3)))


@pytest.mark.parametrize("strategy", [STRATEGY, local_sgd()], ids=lambda x: x.name)
def test_lanes_with_a_mesh_axis_keep_one_branch_for_the_round_s_end(strategy):
    tx = distribute(OPTIMIZER, strategy, sync_period=4)
    mesh = worker_mesh(4)
    args = to_workers((jnp.arange(3.0), tx.init(jnp.arange(3.0))), 4, mesh)

    def train_step(params, opt_state):
        updates, opt_state = tx.update(jnp.cos(params), opt_state, params)
        return optax.apply_updates(params, updates), opt_state

    lanes = jax.vmap(train_step, axis_name=WORKERS, spmd_axis_name=WORKERS)
    with jax.set_mesh(mesh):
        text = jax.jit(lanes).lower(*args).compile().as_text()
    entry = text[text.index("\nENTRY") :]
    assert " conditional(" in entry
    # The mean of the models sits in the branch, not in every step.
    sums = [x for x in entry.splitlines() if " all-reduce(" in x]
    assert all("f64" not in x for x in sums) or strategy.mean_of == "start"


def test_the_counter_is_one_for_all_lanes():
    tx = distribute(OPTIMIZER, local_sgd(), sync_period=4)
    params, opt_state = start(tx)
    jaxpr = jax.make_jaxpr(make_step(tx))(params, opt_state, jnp.ones((4, 3)))
    names = [x.primitive.name for x in jaxpr.jaxpr.eqns]
    assert "cond" in names
    assert "select_n" not in names
