"""The round: what can overlap, what stays with a worker, and what is refused."""

import inspect

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from olsgd_jax import (
    WORKERS,
    cocod_sgd,
    easgd,
    exact,
    init_state,
    local_sgd,
    low_rank,
    make_round,
    make_worker_round,
    overlap_local_sgd,
    payload_bytes,
    plain_loss,
    slowmo,
    sync_sgd,
    worker_mesh,
)
from olsgd_jax.round.round_parts import make_round_parts
from olsgd_jax.round.state import check_state
from olsgd_jax.training import MLP, classification
from tests import helpers

DELAYED = {
    "vanilla": overlap_local_sgd(0.6),
    "momentum": overlap_local_sgd(0.6, 0.7),
    "scaled": overlap_local_sgd(0.6, 0.7, optax.constant_schedule(0.1)),
    "cocod": cocod_sgd(),
}
BLOCKING = {"local": local_sgd(), "slowmo": slowmo(0.7), "easgd": easgd(0.9, 4)}
OPTIMIZER = optax.sgd(0.1, momentum=0.9)
CENTRES = jnp.array([-3.0, -1.0, 1.0, 3.0])  # worker i minimises ½ (x − cᵢ)²

scalar_loss = plain_loss(lambda x, centre: (x - centre) ** 2 / 2)


def scalar_batches(tau, m=4):
    return jnp.broadcast_to(CENTRES[:m, None], (m, tau))


def jaxpr_of_round(strategy):
    worker_round = make_worker_round(scalar_loss, OPTIMIZER, strategy)
    state = init_state(jnp.zeros(()), OPTIMIZER, strategy, num_workers=4)
    one = jax.tree.map(lambda x: x[0], state)
    traced = jax.make_jaxpr(worker_round, axis_env=[(WORKERS, 4)])(one, jnp.ones(3))
    return traced.jaxpr


@pytest.mark.parametrize("name", DELAYED)
def test_the_mean_and_the_local_steps_do_not_wait_for_each_other(name):
    jaxpr = jaxpr_of_round(DELAYED[name])
    assert "scan" not in helpers.upstream_of("psum", jaxpr)
    assert "psum" not in helpers.upstream_of("scan", jaxpr)


@pytest.mark.parametrize("name", BLOCKING)
def test_the_mean_of_a_blocking_strategy_waits_for_the_local_steps(name):
    assert "scan" in helpers.upstream_of("psum", jaxpr_of_round(BLOCKING[name]))


@pytest.mark.parametrize("pullback", [0.0, 0.3, 0.6, 1.0])
def test_workers_settle_at_the_closed_form_spread(pullback, mesh):
    # One step of rate ½ goes half-way to cᵢ. dᵢ = xᵢ − mean x then obeys
    # d ← (1 − α)(d + c) / 2, since the anchor is common to all workers and
    # mean c = 0. At rest d = (1 − α) / (1 + α) c.
    strategy, optimizer = overlap_local_sgd(pullback), optax.sgd(0.5)
    overlap_round = make_round(
        scalar_loss, optimizer, strategy, sync_period=1, mesh=mesh
    )
    state = init_state(jnp.zeros(()), optimizer, strategy, mesh=mesh, num_workers=4)
    for _ in range(60):
        state, _ = overlap_round(state, scalar_batches(1))
    x = np.asarray(state.params)
    expected = (1 - pullback) / (1 + pullback) * CENTRES
    np.testing.assert_allclose(x - x.mean(), expected, atol=1e-12)


def test_the_state_is_sharded_over_the_workers_and_stays_so():
    mesh = worker_mesh(4)
    strategy = overlap_local_sgd(0.6)
    state = init_state(jnp.zeros(3), OPTIMIZER, strategy, mesh=mesh)
    loss = plain_loss(lambda x, centre: jnp.sum((x - centre) ** 2))
    overlap_round = make_round(loss, OPTIMIZER, strategy, sync_period=2, mesh=mesh)
    before = [leaf.sharding for leaf in jax.tree.leaves(state)]
    state, _ = overlap_round(state, jnp.ones((4, 2, 3)))
    after = [leaf.sharding for leaf in jax.tree.leaves(state)]
    spec = jax.sharding.PartitionSpec(WORKERS)
    assert all(sharding.spec == spec for sharding in before + after)
    assert all(len(sharding.device_set) == 4 for sharding in before + after)


def test_the_state_is_donated_and_a_second_round_compiles_nothing(mesh, caplog):
    strategy = overlap_local_sgd(0.6, 0.7)
    overlap_round = make_round(
        scalar_loss, OPTIMIZER, strategy, sync_period=2, mesh=mesh
    )
    first = init_state(jnp.zeros(()), OPTIMIZER, strategy, mesh=mesh, num_workers=4)
    state, _ = overlap_round(first, scalar_batches(2))
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(first))
    batches = scalar_batches(2)
    with jax.log_compiles():
        for _ in range(3):
            state, _ = overlap_round(state, batches)
        assert "Compiling" not in caplog.text
        jax.jit(lambda x: x + 1)(1.0)
    assert "Compiling" in caplog.text  # the log would have told
    np.testing.assert_array_equal(state.round, [4, 4, 4, 4])


class Counting(nn.Module):
    """A model whose state is a running mean of its inputs, and a count of calls."""

    @nn.compact
    def __call__(self, x, train=False):
        running = self.variable("stats", "mean", lambda: jnp.zeros((), x.dtype))
        count = self.variable("stats", "count", lambda: jnp.zeros((), jnp.int32))
        if train:
            running.value = (running.value + x.mean()) / 2
            count.value += 1
        return nn.Dense(3, param_dtype=x.dtype)(x)


def stats_after(strategy, policy, rounds):
    task = classification(Counting(), jax.ShapeDtypeStruct((2, 1), jnp.float64))
    params, model_state = task.init(jax.random.key(0))
    optimizer = optax.sgd(0.0)
    run = make_round(
        task.loss, optimizer, strategy, sync_period=1, model_state_policy=policy
    )
    state = init_state(
        params, optimizer, strategy, num_workers=2, model_state=model_state
    )
    batches = {  # worker 0 sees zeros, worker 1 eights
        "inputs": jnp.array([0.0, 8.0])[:, None, None, None] * jnp.ones((2, 1, 2, 1)),
        "labels": jnp.zeros((2, 1, 2), jnp.int32),
    }
    for _ in range(rounds):
        state, _ = run(state, batches)
    np.testing.assert_array_equal(state.model_state["stats"]["count"], [rounds] * 2)
    return state.model_state["stats"]["mean"].tolist()


@pytest.mark.parametrize("strategy", [sync_sgd(), local_sgd(), overlap_local_sgd(0.6)])
def test_local_model_state_stays_with_its_worker(strategy):
    assert stats_after(strategy, "local", 2) == [0.0, 6.0]


@pytest.mark.parametrize("strategy", [sync_sgd(), local_sgd()])
def test_averaged_model_state_is_the_mean_where_a_round_ends_with_one(strategy):
    # Worker 1 goes 0 → 4, mean 2; then 2 → 5 beside 2 → 1, mean 3.
    assert stats_after(strategy, "averaged", 1) == [2.0, 2.0]
    assert stats_after(strategy, "averaged", 2) == [3.0, 3.0]


@pytest.mark.parametrize("strategy", [cocod_sgd(), overlap_local_sgd(0.6)])
def test_averaged_model_state_goes_half_way_to_a_delayed_mean(strategy):
    # Worker 1: 0 → 4, half-way to the old mean 0 is 2. Then 2 → 5 and 0 → 0, the old
    # mean is 1: half-way 3 and 0.5.
    assert stats_after(strategy, "averaged", 1) == [0.0, 2.0]
    assert stats_after(strategy, "averaged", 2) == [0.5, 3.0]


def test_averaged_model_state_of_a_delayed_strategy_can_overlap_too():
    task = classification(Counting(), jax.ShapeDtypeStruct((2, 1), jnp.float64))
    params, stats = task.init(jax.random.key(0))
    strategy = overlap_local_sgd(0.6)
    worker_round = make_worker_round(task.loss, OPTIMIZER, strategy, "averaged")
    state = init_state(params, OPTIMIZER, strategy, num_workers=2, model_state=stats)
    one = jax.tree.map(lambda x: x[0], state)
    batches = {"inputs": jnp.ones((1, 2, 1)), "labels": jnp.zeros((1, 2), jnp.int32)}
    traced = jax.make_jaxpr(worker_round, axis_env=[(WORKERS, 2)])(one, batches)
    assert "scan" not in helpers.upstream_of("psum", traced.jaxpr)


def noises(seed, tau, rounds, m=3):
    """The noise that every worker's loss draws at every step, (worker, all steps)."""

    def loss(params, model_state, batch, key):
        return jax.random.normal(key) + 0.0 * params * batch, model_state

    run = make_round(loss, optax.sgd(0.1), local_sgd(), sync_period=tau)
    state = init_state(
        jnp.zeros(()), optax.sgd(0.1), local_sgd(), num_workers=m, seed=seed
    )
    drawn = []
    for _ in range(rounds):
        state, record = run(state, jnp.zeros((m, tau)))
        drawn.append(record.loss)
    return np.concatenate(drawn, axis=1)


def test_every_worker_and_every_step_has_randomness_of_its_own():
    drawn = noises(seed=0, tau=4, rounds=3)
    assert len(np.unique(drawn)) == drawn.size


def test_randomness_is_reproducible_from_the_seed():
    np.testing.assert_array_equal(noises(7, 2, 2), noises(7, 2, 2))
    assert not np.any(noises(7, 2, 2) == noises(8, 2, 2))


def test_a_worker_draws_the_same_whatever_the_number_of_workers():
    np.testing.assert_array_equal(noises(0, 2, 2, m=3), noises(0, 2, 2, m=5)[:3])


def test_dropout_differs_between_workers_with_equal_data():
    task = classification(
        MLP(16, num_classes=3, dropout=0.5), jax.ShapeDtypeStruct((8, 4), jnp.float32)
    )
    params, _ = task.init(jax.random.key(0))
    run = make_round(task.loss, OPTIMIZER, local_sgd(), sync_period=2)
    state = init_state(params, OPTIMIZER, local_sgd(), num_workers=4)
    batches = {
        "inputs": jnp.ones((4, 2, 8, 4), jnp.float32),
        "labels": jnp.zeros((4, 2, 8), jnp.int32),
    }
    with jax.numpy_dtype_promotion("standard"):
        _, record = run(state, batches)
    assert len(np.unique(record.loss[:, 0])) == 4


class TestPayload:
    params = {"w": jnp.zeros((6, 4)), "b": jnp.zeros(4)}  # 28 numbers, 224 bytes

    def bytes_of(self, strategy, tau=5, **options):
        loss = plain_loss(lambda params, batch: optax.tree.sum(params))
        worker_round = make_worker_round(loss, OPTIMIZER, strategy, **options)
        state = init_state(self.params, OPTIMIZER, strategy, num_workers=4, **options)
        return payload_bytes(worker_round, state, jnp.zeros((4, tau)), num_workers=4)

    @pytest.mark.parametrize("strategy", [*DELAYED.values(), *BLOCKING.values()])
    def test_a_round_sends_one_model(self, strategy):
        assert self.bytes_of(strategy) == 224

    def test_sync_sgd_sends_a_gradient_at_every_step(self):
        assert self.bytes_of(sync_sgd()) == 5 * 224

    def test_in_low_rank_it_sends_two_thin_matrices_and_the_vectors(self):
        sent = self.bytes_of(sync_sgd(), reduction=low_rank(2))
        assert sent == 5 * 8 * (2 * (6 + 4) + 4)


def round_and_state(strategy=None, optimizer=OPTIMIZER, tau=2, m=4):
    strategy = strategy or overlap_local_sgd(0.6)
    run = make_round(scalar_loss, optimizer, strategy, sync_period=tau)
    return run, init_state(jnp.zeros(()), optimizer, strategy, num_workers=m)


def test_a_batch_for_another_number_of_workers_is_refused():
    run, state = round_and_state()
    message = r"batches must have leading axes \(num_workers 4, sync_period 2\), got"
    with pytest.raises(ValueError, match=message + r" shape \(3, 2\) at the top"):
        run(state, jnp.zeros((3, 2)))


def test_a_sync_period_that_does_not_fit_the_batches_is_refused():
    run, state = round_and_state(tau=3)
    with pytest.raises(ValueError, match=r"sync_period 3\), got shape \(4, 2\)"):
        run(state, jnp.zeros((4, 2)))


def test_batches_without_arrays_are_refused():
    run, state = round_and_state()
    with pytest.raises(ValueError, match="batches must have at least one array"):
        run(state, {})


@pytest.mark.parametrize("tau", [0, -1])
def test_a_sync_period_below_one_is_refused(tau):
    with pytest.raises(ValueError, match=f"sync_period must be at least 1, got {tau}"):
        make_round(scalar_loss, OPTIMIZER, local_sgd(), sync_period=tau)


def test_a_sync_period_that_is_no_whole_number_is_refused():
    with pytest.raises(TypeError, match="sync_period must be a whole number, got 2.5"):
        inspect.unwrap(make_round)(scalar_loss, OPTIMIZER, local_sgd(), sync_period=2.5)


def test_an_optimizer_state_of_another_optimizer_is_refused():
    run, _ = round_and_state(optimizer=optax.adam(1e-3))
    _, state = round_and_state(optimizer=optax.sgd(0.1, momentum=0.9))
    message = r"state.opt_state must have .*pass the optimizer that init_state got"
    with pytest.raises(ValueError, match=message):
        run(state, scalar_batches(2))


def test_a_strategy_state_of_another_strategy_is_refused():
    run, _ = round_and_state(strategy=local_sgd())
    _, state = round_and_state(strategy=overlap_local_sgd(0.6))
    message = r"state.strategy_state must have nothing at .*pass the strategy"
    with pytest.raises(ValueError, match=message):
        run(state, scalar_batches(2))


def test_states_of_like_arrays_in_another_structure_are_refused():
    run, _ = round_and_state(optimizer=optax.sgd(0.1))
    _, state = round_and_state(optimizer=optax.chain(optax.sgd(0.1)))
    with pytest.raises(ValueError, match="state.opt_state must have the structure"):
        run(state, scalar_batches(2))


def test_a_state_that_init_state_did_not_make_is_refused():
    _, state = round_and_state()
    arguments = (scalar_batches(2), OPTIMIZER, local_sgd(), exact(), "local", 2, None)
    with pytest.raises(TypeError, match="state must be made by init_state, got dict"):
        inspect.unwrap(check_state)(state._asdict(), *arguments)


def test_a_state_whose_arrays_disagree_on_the_workers_is_refused():
    run, state = round_and_state()
    state = state._replace(params=jnp.zeros(3))
    with pytest.raises(ValueError, match=r"state must have leading axes \(num_workers"):
        run(state, scalar_batches(2))


def test_a_state_for_another_mesh_is_refused():
    strategy = overlap_local_sgd(0.6)
    run = make_round(
        scalar_loss, OPTIMIZER, strategy, sync_period=2, mesh=worker_mesh(4)
    )
    state = init_state(jnp.zeros(()), OPTIMIZER, strategy, num_workers=6)
    with pytest.raises(ValueError, match="a multiple of the mesh axis 'workers', 4, g"):
        run(state, jnp.zeros((6, 2)))


def test_a_strategy_built_for_another_number_of_workers_is_refused():
    with pytest.raises(ValueError, match="easgd was built with num_workers=4, got 8"):
        init_state(jnp.zeros(()), OPTIMIZER, easgd(0.9, 4), num_workers=8)


@pytest.mark.parametrize("params", [{}, [], {"layer": {}}])
def test_params_without_arrays_are_refused(params):
    with pytest.raises(ValueError, match="params must have at least one array"):
        init_state(params, OPTIMIZER, local_sgd(), num_workers=2)


def test_params_that_are_not_floating_point_are_refused():
    params = {"w": jnp.zeros(3), "steps": jnp.zeros((), jnp.int32)}
    message = r"params must be floating point, got int32 at \['steps'\]; keep what is"
    with pytest.raises(TypeError, match=message):
        init_state(params, OPTIMIZER, local_sgd(), num_workers=2)


def test_params_that_are_not_arrays_are_refused():
    with pytest.raises(TypeError, match=r"params must be arrays, got float at \['w'\]"):
        init_state({"w": 1.0}, OPTIMIZER, local_sgd(), num_workers=2)


def test_lanes_without_a_number_of_workers_are_refused():
    with pytest.raises(ValueError, match="num_workers must be given where there is no"):
        init_state(jnp.zeros(()), OPTIMIZER, local_sgd())


def test_a_number_of_workers_beside_a_mesh_of_another_size_is_refused():
    message = "num_workers must be a multiple of the mesh axis 'workers', 4, got 3"
    with pytest.raises(ValueError, match=message):
        init_state(
            jnp.zeros(()), OPTIMIZER, local_sgd(), mesh=worker_mesh(4), num_workers=3
        )


def test_an_unknown_policy_for_model_state_is_refused():
    message = "model_state_policy must be one of local, averaged, got 'global'"
    with pytest.raises(ValueError, match=message):
        inspect.unwrap(make_round_parts)(
            scalar_loss, OPTIMIZER, local_sgd(), "global", exact()
        )
