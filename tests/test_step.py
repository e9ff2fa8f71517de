"""overlap_jit: the step that users compile, and what it refuses."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from flax import nnx
from flax.training.train_state import TrainState
from jax.sharding import AxisType, Mesh, PartitionSpec

from olsgd_jax import (
    WORKERS,
    anchor_of,
    cocod_sgd,
    compiler_options,
    consensus_of,
    distribute,
    exact,
    local_sgd,
    on_workers,
    overlap_jit,
    overlap_local_sgd,
    sync_sgd,
    to_workers,
    worker_mesh,
)
from olsgd_jax.drivers.forms import fragments
from olsgd_jax.overlap import overlap_report
from tests import reference
from tests.helpers import SIZE, as_flat, as_tree, quadratic_loss

STRATEGY = overlap_local_sgd(0.6, 0.7)
AS_NUMPY = ocp.RestoreArgs(restore_type=np.ndarray)
X = jnp.arange(3.0)


def loss(x, centre):
    return jnp.sum((x - centre) ** 2) / 2


def make_step(tx, change=lambda grads: grads):
    def train_step(state, centre):
        params, opt_state = state
        grads = change(jax.grad(loss)(params, centre))
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state

    return train_step


def start(tx, mesh=None, m=4):
    return to_workers((X, tx.init(X)), m, mesh)


LOOPS = {
    "overlap_local_sgd": (
        STRATEGY,
        lambda *x: reference.overlap_local_sgd(*x, alpha=0.6, beta=0.7),
    ),
    "cocod_sgd": (cocod_sgd(), reference.cocod_sgd),
    "local_sgd": (local_sgd(), reference.local_sgd),
    "sync_sgd": (sync_sgd(), reference.sync_sgd),
}


def assert_follows(name, tau, mesh, m=4, axis_name=WORKERS):
    strategy, loop = LOOPS[name]
    problem = reference.Problem(m, 4 * tau, reference.sgd(lambda k: 0.1), SIZE)
    tx = distribute(optax.sgd(0.1), strategy, tau, axis_name=axis_name)
    grad = jax.grad(quadratic_loss(problem.curvature))

    def train_step(state, centre):
        params, opt_state = state
        updates, opt_state = tx.update(grad(params, centre), opt_state, params)
        return optax.apply_updates(params, updates), opt_state

    params = as_tree(problem.start)
    state = to_workers((params, tx.init(params)), m)
    step = overlap_jit(train_step, mesh, axis_name=axis_name)
    for k, (expected, _) in enumerate(loop(problem, tau)):
        state = step(state, as_tree(problem.centres[:, k]))
        np.testing.assert_allclose(as_flat(state[0]), expected, atol=1e-12)


@pytest.mark.parametrize("tau", [1, 2, 3])
@pytest.mark.parametrize("name", LOOPS)
def test_a_compiled_step_follows_the_numpy_loop(name, tau, mesh):
    assert_follows(name, tau, mesh)


@pytest.mark.parametrize("tau", [2, 3, 4, 5])
@pytest.mark.parametrize("m", [3, 4])
@pytest.mark.parametrize("name", ["overlap_local_sgd", "cocod_sgd"])
def test_the_exchange_of_tpus_gives_the_same_mean(name, m, tau, monkeypatch):
    monkeypatch.setattr(fragments, "platform_here", lambda: "tpu")
    assert_follows(name, tau, worker_mesh(m), m)


def test_the_exchange_carries_fragments_of_whole_tiles(monkeypatch):
    monkeypatch.setattr(fragments, "platform_here", lambda: "tpu")
    x = jax.random.normal(jax.random.key(0), (4, 10_000))

    def send_all(x):
        sent = fragments.cut_fragments(x, 5), ()
        for k in map(jnp.array, range(5)):
            sent, _ = fragments.carry_fragment(exact(), sent, k, (), WORKERS)
        return fragments.join_fragments(sent[0], x)

    sent = jax.jit(on_workers(send_all, worker_mesh(4)))(x)
    np.testing.assert_allclose(sent, np.tile(np.mean(x, 0), (4, 1)), atol=1e-12)


def test_a_cpu_sends_when_its_step_has_nothing_left_to_compute():
    # A loop holds the sum and takes the updates. By itself it would start early, and
    # block a thread that the step computes on.
    tx = distribute(optax.sgd(0.1), overlap_local_sgd(0.5), sync_period=2)
    mesh = worker_mesh(4)
    step = overlap_jit(make_step(tx), mesh)
    program = step.lower(start(tx, mesh), jnp.zeros((4, 3))).compile().as_text()

    entry = program[program.index("ENTRY") :]
    assert "all-reduce" in program
    assert "all-reduce" not in entry


def own_mesh():
    devices = np.array(jax.devices()[:8]).reshape(2, 4)
    return Mesh(devices, ("fsdp", "replica"), axis_types=(AxisType.Auto,) * 2)


def test_a_mesh_of_the_users_own_with_fsdp_inside_serves_as_well():
    assert_follows("overlap_local_sgd", 3, own_mesh(), axis_name="replica")


def step_of_matrices(mesh, axis_name, shape):
    """A compiled step on one matrix, with batches of eight examples; and its state."""
    tx = distribute(optax.sgd(0.1), STRATEGY, 2, axis_name=axis_name)

    def train_step(state, inputs):
        params, opt_state = state
        grads = jax.grad(lambda w: jnp.sum((inputs @ w) ** 2))(params)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state

    params = jnp.ones(shape)
    state = to_workers((params, tx.init(params)), 4, mesh, axis_name=axis_name)
    step = overlap_jit(train_step, mesh, axis_name=axis_name)
    return step, (state, jnp.ones((4, 8, shape[0])))


def test_devices_of_a_worker_share_its_batch():
    flops = []
    for mesh, axis_name in ((own_mesh(), "replica"), (worker_mesh(4), WORKERS)):
        step, args = step_of_matrices(mesh, axis_name, (3, 5))  # which nothing cuts
        flops.append(overlap_report(step.lower(*args).compile()).program_flops)
    assert 0 < flops[0] == flops[1] / 2


def test_devices_of_a_worker_share_its_state():
    step, args = step_of_matrices(own_mesh(), "replica", (3, 4))
    params, opt_state = step(*args)
    for x in (params, opt_state.strategy_state.anchor):
        assert x.sharding.spec == PartitionSpec("replica", None, "fsdp")


@pytest.mark.parametrize("platform", ["cpu", "tpu"])
def test_several_workers_may_share_a_device(platform, monkeypatch):
    monkeypatch.setattr(fragments, "platform_here", lambda: platform)
    assert_follows("overlap_local_sgd", 3, worker_mesh(2), m=4)


def test_several_steps_in_one_program_are_the_same_steps():
    tx = distribute(optax.sgd(0.1, momentum=0.9), STRATEGY, 3)
    one = make_step(tx)
    mesh = worker_mesh(4)
    centres = jax.random.normal(jax.random.key(0), (4, 8, 3))

    def many(state, centres):
        return jax.lax.scan(lambda s, c: (one(s, c), None), state, centres)[0]

    step, steps = overlap_jit(one, mesh), overlap_jit(many, mesh)
    ours = steps(start(tx, mesh), centres)
    expected = start(tx, mesh)
    for k in range(8):
        expected = step(expected, centres[:, k])
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-12), ours, expected
    )


@pytest.mark.parametrize("many", [False, True])
def test_a_wrapper_that_skips_steps_of_single_workers_is_refused(many):
    mesh = worker_mesh(4)
    # A worker with a NaN would skip its step, and the others wait for it for ever.
    tx = optax.apply_if_finite(distribute(optax.sgd(0.1), STRATEGY, 2), 3)
    step, centres = make_step(tx), jnp.ones((4, 2, 3))
    if many:
        one = step

        def step(state, centres):
            return jax.lax.scan(lambda s, c: (one(s, c), None), state, centres)[0]

    else:
        centres = centres[:, 0]
    with pytest.raises(ValueError, match="workers must agree on every branch"):
        overlap_jit(step, mesh)(start(tx, mesh), centres)


def test_a_branch_that_an_earlier_step_chose_is_refused():
    mesh = worker_mesh(4)
    tx = distribute(optax.sgd(0.1), STRATEGY, 2)
    one = make_step(tx)

    def many(state, centres):
        def unless_stopped(carry, centre):
            state, is_stopped = carry
            state = jax.lax.cond(
                is_stopped, lambda s: s, lambda s: one(s, centre), state
            )
            return (state, ~jnp.isfinite(state[0]).all()), None

        return jax.lax.scan(unless_stopped, (state, jnp.array(False)), centres)[0][0]

    with pytest.raises(ValueError, match="workers must agree on every branch"):
        overlap_jit(many, mesh)(start(tx, mesh), jnp.ones((4, 2, 3)))


def test_the_wrapper_may_skip_steps_inside():
    tx = distribute(optax.apply_if_finite(optax.sgd(0.1), 9), STRATEGY, 2)
    mesh = worker_mesh(4)
    step, state = overlap_jit(make_step(tx), mesh), start(tx, mesh)
    centres = jnp.ones((4, 3)).at[2].set(jnp.nan)
    for _ in range(4):
        state = step(state, centres)
    assert np.all(np.isfinite(state[0]))


@pytest.mark.parametrize("accumulated", [False, True])
def test_a_wrapper_on_which_all_workers_agree_is_taken(accumulated):
    inner = distribute(optax.sgd(0.1), STRATEGY, 2)
    tx = optax.MultiSteps(inner, 2) if accumulated else optax.chain(inner)
    mesh = worker_mesh(4)
    state = start(tx, mesh)
    with jax.numpy_dtype_promotion("standard"):  # MultiSteps relies on it
        state = overlap_jit(make_step(tx), mesh)(state, jnp.ones((4, 3)))
    assert np.all(np.isfinite(state[0]))


def test_averaged_gradients_are_refused(mesh):
    tx = distribute(optax.sgd(0.1), STRATEGY, 2)
    step = make_step(tx, change=lambda g: 2 * jax.lax.pmean(g, WORKERS))
    with pytest.raises(ValueError, match="leave out the pmean or psum of the grad"):
        overlap_jit(step, mesh)(start(tx, mesh), jnp.ones((4, 3)))


def test_a_collective_over_another_axis_is_refused(mesh):
    tx = distribute(optax.sgd(0.1), STRATEGY, 2)
    step = make_step(tx, change=lambda g: jax.lax.pmean(g, "batch"))
    with pytest.raises(ValueError, match="use axis_name='workers' in its collectives"):
        overlap_jit(step, mesh)(start(tx, mesh), jnp.ones((4, 3)))


def test_it_decorates_a_step(mesh):
    tx = distribute(optax.sgd(0.1), STRATEGY, 2)
    plain = overlap_jit(make_step(tx), mesh)(start(tx, mesh), jnp.ones((4, 3)))
    decorated = overlap_jit(mesh=mesh)(make_step(tx))
    as_decorator = decorated(start(tx, mesh), jnp.ones((4, 3)))
    jax.tree.map(np.testing.assert_array_equal, as_decorator, plain)


def test_a_mean_of_the_loss_is_no_mean_of_the_gradients(mesh):
    tx = distribute(optax.sgd(0.1), STRATEGY, 2)
    step = make_step(tx)

    def logged(state, centre):
        return step(state, centre), jax.lax.pmean(loss(state[0], centre), WORKERS)

    _, value = overlap_jit(logged, mesh)(start(tx, mesh), jnp.ones((4, 3)))
    assert value.shape == (4,)


def test_a_step_that_keeps_the_old_state_of_single_workers_is_refused(mesh):
    tx = distribute(optax.sgd(0.1), STRATEGY, 2)
    one = make_step(tx)

    def step(state, centre):  # as loops with loss scaling do
        new, is_finite = one(state, centre), jnp.all(jnp.isfinite(centre))
        return jax.tree.map(lambda x, y: jnp.where(is_finite, x, y), new, state)

    with pytest.raises(ValueError, match="workers must all take every step"):
        overlap_jit(step, mesh)(start(tx, mesh), jnp.ones((4, 3)))


def test_a_skipped_step_that_all_workers_agree_on_is_not(mesh):
    tx = distribute(optax.sgd(0.1), STRATEGY, 2)
    one = make_step(tx)

    def step(state, centre):
        new, is_finite = one(state, centre), jnp.all(jnp.isfinite(centre))
        is_finite = jax.lax.pmin(is_finite.astype(jnp.int32), WORKERS) > 0
        return jax.tree.map(lambda x, y: jnp.where(is_finite, x, y), new, state)

    params, opt_state = overlap_jit(step, mesh)(start(tx, mesh), jnp.ones((4, 3)))
    assert opt_state.step.tolist() == [1] * 4


def test_the_same_key_for_all_workers_is_warned_about(mesh):
    def step(state, key):
        return state + jax.random.normal(key, state.shape)

    keys = jax.random.split(jax.random.key(0), 4)
    same = jnp.broadcast_to(keys[:1], (4,))
    with pytest.warns(UserWarning, match="all workers have the same random key in arg"):
        overlap_jit(step, mesh)(jnp.zeros((4, 3)), same)
    overlap_jit(step, mesh)(jnp.zeros((4, 3)), keys)  # a warning would be an error


def test_arguments_without_a_worker_axis_are_refused():
    tx = distribute(optax.sgd(0.1), STRATEGY, 2)
    step = overlap_jit(make_step(tx), worker_mesh(4))
    with pytest.raises(ValueError, match="arguments must have a leading worker axis"):
        step((X, tx.init(X)), jnp.ones((1, 3)))
    message = (
        r"argument 1 must have leading axes \(num_workers 4\), got shape \(8, 3\) "
        r"at the top; .* give state a worker axis with to_workers, shape data "
        r"\(worker, batch, ...\), repeat a number with jnp.full"
    )
    with pytest.raises(ValueError, match=message):
        step(start(tx, worker_mesh(4)), jnp.ones((8, 3)))
    message = r"argument 0 must have leading axes \(num_workers 4\), got shape \(8,"
    with pytest.raises(ValueError, match=message):
        step((jnp.ones((8, 3)), tx.init(X)), jnp.ones((4, 3)))


def test_a_mesh_without_the_workers_axis_is_refused():
    with pytest.raises(ValueError, match="mesh must have an axis 'workers'"):
        compiler_options(own_mesh())


def test_a_second_step_compiles_nothing(mesh, caplog):
    tx = distribute(optax.sgd(0.1), STRATEGY, 2)
    step, state = overlap_jit(make_step(tx), mesh), start(tx, mesh)
    centres = to_workers(jnp.ones(3), 4, mesh)
    state = step(state, centres)
    with jax.log_compiles():
        step(state, centres)
    assert not [x for x in caplog.messages if "checked_step" in x]


def test_the_consensus_of_a_train_state_is_one_train_state(mesh):
    tx = distribute(optax.sgd(0.1), STRATEGY, 2)
    state = TrainState.create(apply_fn=None, params={"w": X}, tx=tx)
    state = to_workers(state, 4, mesh)

    def train_step(state, centre):
        grads = jax.grad(lambda p: loss(p["w"], centre))(state.params)
        return state.apply_gradients(grads=grads)

    step = overlap_jit(train_step, mesh)
    for k in range(3):
        state = step(state, jax.random.normal(jax.random.key(k), (4, 3)))
    one = consensus_of(state)
    assert isinstance(one, TrainState)
    assert int(one.step) == 3
    np.testing.assert_allclose(
        one.params["w"], np.mean(state.params["w"], 0), atol=1e-12
    )
    anchor = anchor_of(state)
    np.testing.assert_array_equal(
        anchor["w"], state.opt_state.strategy_state.anchor["w"][1]
    )


class Network(nnx.Module):
    def __init__(self, rngs):
        self.out = nnx.Linear(3, 2, rngs=rngs)


def test_an_nnx_optimizer_gives_its_consensus_and_anchor(mesh):
    with jax.numpy_dtype_promotion("standard"):
        model = Network(nnx.Rngs(0))
        tx = distribute(optax.sgd(0.1), STRATEGY, 2)
        optimizer = nnx.Optimizer(model, tx, wrt=nnx.Param)
        graph, state = nnx.split((model, optimizer))
        state = to_workers(state, 4, mesh)

        def train_step(state, inputs):
            model, optimizer = nnx.merge(graph, state)
            grads = nnx.grad(lambda m: jnp.sum(m.out(inputs) ** 2))(model)
            optimizer.update(model, grads)
            return nnx.state((model, optimizer))

        step = overlap_jit(train_step, mesh)
        for k in range(2):
            state = step(state, jax.random.normal(jax.random.key(k), (4, 5, 3)))
        merged, _ = nnx.merge(graph, consensus_of(state))
        kernel = nnx.state(nnx.merge(graph, state)[0])["out"]["kernel"][...]
        np.testing.assert_allclose(
            merged.out.kernel[...], np.mean(kernel, 0), rtol=1e-6
        )
        nnx.update(merged, anchor_of(state))
        assert merged.out.kernel.shape == (3, 2)


def test_an_nnx_step_in_place_is_that_of_its_state(mesh):
    tx = distribute(optax.adam(0.1), STRATEGY, 2)

    def train_step(model, optimizer, inputs):
        loss, grads = nnx.value_and_grad(lambda m: jnp.sum(m.out(inputs) ** 2))(model)
        optimizer.update(model, grads)
        return loss

    def by_state(state, inputs):
        model, optimizer = nnx.merge(graph, state)
        loss = train_step(model, optimizer, inputs)
        return nnx.state((model, optimizer)), loss

    def in_place(state, inputs):
        return state, nnx.jit(train_step)(*state, inputs)

    with jax.numpy_dtype_promotion("standard"):
        model = Network(nnx.Rngs(0))
        modules = model, nnx.Optimizer(model, tx, wrt=nnx.Param)
        graph, state = nnx.split(modules)
        expected, ours = to_workers(state, 4, mesh), to_workers(modules, 4, mesh)
        steps = overlap_jit(by_state, mesh), overlap_jit(in_place, mesh)
        for k in range(5):
            inputs = jax.random.normal(jax.random.key(k), (4, 5, 3))
            expected, loss = steps[0](expected, inputs)
            ours, same = steps[1](ours, inputs)
            np.testing.assert_allclose(same, loss, rtol=1e-6)
        one = consensus_of(ours)
    assert isinstance(one[0], Network)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6),
        nnx.state(one),
        consensus_of(expected),
    )


def test_nnx_workers_draw_their_own_masks_once_reseeded(mesh):
    class Masked(nnx.Module):
        def __init__(self, rngs):
            self.scale = nnx.Param(jnp.ones(()))
            self.dropout = nnx.Dropout(0.5, rngs=rngs)

    def train_step(state, inputs):
        model, optimizer = state
        grads = nnx.grad(lambda m: jnp.sum(m.dropout(inputs) * m.scale))(model)
        optimizer.update(model, grads)
        return state, model.dropout(inputs)

    with jax.numpy_dtype_promotion("standard"):
        model = Masked(nnx.Rngs(0))
        tx = distribute(optax.sgd(0.1), STRATEGY, 2)
        modules = model, nnx.Optimizer(model, tx, wrt=nnx.Param)
        state, inputs = to_workers(modules, 4, mesh), jnp.ones((4, 64))
        with pytest.warns(UserWarning, match="all workers have the same random key"):
            _, masks = overlap_jit(train_step, mesh)(state, inputs)
        assert len(np.unique(masks, axis=0)) == 1
        state = to_workers(modules, 4, mesh)
        nnx.reseed(state[0], policy="match_shape", default=1)
        _, masks = overlap_jit(train_step, mesh)(state, inputs)
        assert len(np.unique(masks, axis=0)) == 4


def test_a_state_that_claims_to_be_replicated_is_refused():
    tx = distribute(optax.sgd(0.1), STRATEGY, 2, axis_name="batch")
    step = jax.pmap(
        make_step(tx), axis_name="batch", in_axes=(None, 0), out_axes=None,
        devices=jax.devices()[:4],
    )  # fmt: skip
    state = step((X, tx.init(X)), jnp.arange(12.0).reshape(4, 3))
    with pytest.raises(ValueError, match="claims to be the same on all devices"):
        consensus_of(state)
    with pytest.raises(ValueError, match="claims to be the same on all devices"):
        consensus_of({"a step count": state[1].step, "params": state[0]})
    with pytest.raises(ValueError, match="claims to be the same on all devices"):
        anchor_of(state)


def test_a_state_of_one_worker_is_refused():
    tx = distribute(optax.sgd(0.1), STRATEGY, 2)
    message = r"got \[1\].step of shape \(\); give the state one with to_workers"
    with pytest.raises(ValueError, match=message):
        consensus_of((X, tx.init(X)))


def test_an_anchor_that_is_not_kept_is_refused():
    tx = distribute(optax.sgd(0.1), cocod_sgd(), 2)
    with pytest.raises(ValueError, match="state must hold one anchor, got 0"):
        anchor_of(start(tx))


def test_plain_orbax_saves_and_restores_the_consensus_and_the_state(mesh, tmp_path):
    tx = distribute(optax.sgd(0.1), STRATEGY, 3)
    step, state = overlap_jit(make_step(tx), mesh), start(tx, mesh)
    centres = jax.random.normal(jax.random.key(0), (4, 3))
    state = step(state, centres)
    checkpointer = ocp.PyTreeCheckpointer()
    checkpointer.save(tmp_path / "all", state)
    checkpointer.save(tmp_path / "one", {"w": consensus_of(state[0])})
    restore_args = ocp.checkpoint_utils.construct_restore_args(state)
    same = checkpointer.restore(tmp_path / "all", item=state, restore_args=restore_args)
    one = checkpointer.restore(tmp_path / "one", restore_args={"w": AS_NUMPY})["w"]
    np.testing.assert_allclose(one, np.mean(state[0], 0), atol=1e-12)
    ours, theirs = step(same, centres), step(state, centres)
    jax.tree.map(np.testing.assert_array_equal, ours, theirs)


def test_a_step_that_keeps_its_state_is_refused(mesh):
    # As nnx steps do that update in place: nothing would be trained.
    def train_step(state, centre):
        return loss(state, centre)

    step = overlap_jit(train_step, mesh)
    with pytest.raises(ValueError, match="train_step must return its new") as caught:
        step(jnp.ones((4, 3)), jnp.ones((4, 3)))
    assert "(state, train_step(*state, *batch))" in str(caught.value)


def test_a_step_may_return_a_number_of_python():
    step = overlap_jit(lambda state: (state, 1.5), worker_mesh(4))
    assert step(jnp.ones((4, 3)))[1].tolist() == [1.5] * 4


def test_a_run_goes_on_from_its_consensus(mesh):
    tx = distribute(optax.sgd(0.1), STRATEGY, 2)
    step, state = overlap_jit(make_step(tx), mesh), start(tx, mesh)
    state = step(state, jax.random.normal(jax.random.key(0), (4, 3)))
    one = consensus_of((state, jax.random.split(jax.random.key(1), 4)))
    again, keys = to_workers(one, 4, mesh)
    assert keys.shape == (4,)
    again = step(again, jnp.ones((4, 3)))
    assert np.all(np.isfinite(again[0]))


def test_copies_lie_along_an_axis_of_the_users_own():
    x = to_workers(jnp.ones(3), 4, own_mesh(), axis_name="replica")
    assert x.sharding.spec[0] == "replica"
