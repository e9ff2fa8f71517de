"""The host driver: the numbers of one program, and no thread left behind."""

import contextlib
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from olsgd_jax import (
    cocod_sgd,
    easgd,
    init_state,
    local_sgd,
    make_round,
    overlap_local_sgd,
    plain_loss,
    worker_mesh,
)
from olsgd_jax.drivers.forms import buckets
from olsgd_jax.drivers.host import host
from olsgd_jax.drivers.host_programs import make_programs
from olsgd_jax.reductions.exact import exact
from olsgd_jax.round.round_parts import make_round_parts

OPTIMIZER = optax.sgd(0.1, momentum=0.9, nesterov=True)
STRATEGIES = [
    overlap_local_sgd(0.6),
    overlap_local_sgd(0.6, 0.7),
    overlap_local_sgd(
        0.6, 0.7, learning_rate=lambda step: jnp.where(step < 4, 0.1, 0.05)
    ),
    cocod_sgd(),
]
TAU, PARAMS = 3, {"w": jnp.arange(6.0).reshape(2, 3), "b": jnp.ones(3)}


@plain_loss
def loss(params, x):
    return jnp.sum(jnp.tanh(x @ params["w"] + params["b"]) ** 2)


def batches(m, r):
    return jax.random.normal(jax.random.key(r), (m, TAU, 4, 2))


def states_of(driver, strategy, m, rounds):
    mesh = worker_mesh(m)
    run = make_round(
        loss, OPTIMIZER, strategy, sync_period=TAU, mesh=mesh, driver=driver
    )
    state = init_state(PARAMS, OPTIMIZER, strategy, mesh=mesh)
    for r in range(rounds):
        state, record = run(state, batches(m, r))
        yield state, record


@pytest.mark.parametrize(("m", "num_buckets"), [(1, 5), (3, 1), (3, 5), (16, 1)])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_it_gives_the_bits_of_the_fused_driver(strategy, m, num_buckets, monkeypatch):
    # Of 9 numbers: five buckets cut the arrays where they do not end.
    monkeypatch.setattr(buckets, "LEAST_BYTES", 9 * 8 // num_buckets)
    pairs = zip(
        states_of("host", strategy, m, 4),
        states_of("fused", strategy, m, 4),
        strict=True,
    )
    for (ours, record), (fused, other) in pairs:
        np.testing.assert_array_equal(record.loss, other.loss)
        jax.tree.map(
            np.testing.assert_array_equal,
            (ours.params, ours.opt_state, ours.strategy_state, ours.round),
            (fused.params, fused.opt_state, fused.strategy_state, fused.round),
        )


def test_hundreds_of_rounds_on_many_devices_neither_hang_nor_leave_a_thread():
    before = threading.active_count()
    *_, (state, _) = states_of("host", STRATEGIES[0], 16, 300)
    np.testing.assert_array_equal(state.round, [300] * 16)
    assert threading.active_count() == before


def averaging(mean):
    return exact()._replace(reduce=lambda message, state: (mean(message), state))


def test_an_error_in_the_thread_reaches_the_caller():
    mesh, strategy = worker_mesh(4), STRATEGIES[0]

    def fail(tree):
        raise RuntimeError("the network is gone")

    def failing_mean(tree):  # when it runs, not when it is traced
        return jax.pure_callback(fail, tree, tree)

    parts = make_round_parts(loss, OPTIMIZER, strategy, "local", exact())
    run = host(parts, averaging(failing_mean), lambda state, batches: None, mesh, None)
    state = init_state(PARAMS, OPTIMIZER, strategy, mesh=mesh)
    with pytest.raises(jax.errors.JaxRuntimeError, match="the network is gone"):
        run(state, batches(4, 0))
    assert not any(t.name.startswith("olsgd_jax") for t in threading.enumerate())


def test_an_error_in_the_local_steps_reaches_the_caller_and_leaves_no_thread():
    def failing_loss(params, model_state, batch, key):
        raise RuntimeError("no such layer")

    mesh, strategy = worker_mesh(4), STRATEGIES[0]
    run = make_round(
        failing_loss, OPTIMIZER, strategy, sync_period=TAU, mesh=mesh, driver="host"
    )
    state = init_state(PARAMS, OPTIMIZER, strategy, mesh=mesh)
    with pytest.raises(RuntimeError, match="no such layer"):
        run(state, batches(4, 0))
    assert not any(t.name.startswith("olsgd_jax") for t in threading.enumerate())


def test_after_an_error_no_more_buckets_are_sent(monkeypatch):
    monkeypatch.setattr(buckets, "LEAST_BYTES", 8)  # nine buckets of one number
    mesh, strategy = worker_mesh(1), STRATEGIES[0]
    sent = []

    def slow_mean(tree):
        def wait(tree):
            sent.append(tree)
            time.sleep(0.5)
            return tree

        return jax.pure_callback(wait, tree, tree)

    def failing_steps(*args, **kwargs):
        raise RuntimeError("no such layer")

    parts = make_round_parts(loss, OPTIMIZER, strategy, "local", exact())
    parts = parts._replace(local_steps=failing_steps)
    run = host(parts, averaging(slow_mean), lambda state, batches: None, mesh, None)
    state = init_state(PARAMS, OPTIMIZER, strategy, mesh=mesh)
    with pytest.raises(RuntimeError, match="no such layer"):
        run(state, batches(1, 0))
    assert len(sent) < 9


def test_batches_that_do_not_fit_are_refused_before_anything_runs():
    mesh, strategy = worker_mesh(4), STRATEGIES[0]
    run = make_round(
        loss, OPTIMIZER, strategy, sync_period=TAU, mesh=mesh, driver="host"
    )
    state = init_state(PARAMS, OPTIMIZER, strategy, mesh=mesh)
    with pytest.raises(ValueError, match="batches must have leading axes"):
        run(state, batches(3, 0))


def test_a_blocking_strategy_is_refused():
    with pytest.raises(ValueError, match="driver must be 'fused' under local_sgd"):
        make_round(
            loss,
            OPTIMIZER,
            local_sgd(),
            sync_period=TAU,
            mesh=worker_mesh(4),
            driver="host",
        )


def test_a_stream_under_the_host_driver_is_refused():
    with pytest.raises(ValueError, match="stream must be False under the host driver"):
        make_round(
            loss, OPTIMIZER, STRATEGIES[0], sync_period=2, stream=True, driver="host"
        )


def test_what_no_program_changes_is_not_copied():
    mesh, strategy = worker_mesh(2), STRATEGIES[1]
    run = make_round(
        loss, OPTIMIZER, strategy, sync_period=TAU, mesh=mesh, driver="host"
    )
    state = init_state(PARAMS, OPTIMIZER, strategy, mesh=mesh)
    after, _ = run(state, batches(2, 0))
    assert after.key is state.key


def test_a_bucket_is_mixed_before_the_next_has_come(monkeypatch):
    # The mean of the second bucket waits until the first is mixed, or for good.
    monkeypatch.setattr(buckets, "LEAST_BYTES", 3 * 8)
    mesh, strategy = worker_mesh(1), STRATEGIES[1]
    is_mixed, sent = threading.Event(), []

    def slow_mean(tree):
        def wait(tree):
            sent.append(tree["float64"].size)
            if len(sent) > 1:
                assert is_mixed.wait(timeout=60)
            return tree

        return jax.pure_callback(wait, tree, tree, vmap_method="sequential")

    parts = make_round_parts(loss, OPTIMIZER, strategy, "local", exact())

    def mix(*args):
        jax.debug.callback(is_mixed.set)
        return parts.mix(*args)

    reduction = averaging(slow_mean)
    run = host(
        parts._replace(mix=mix), reduction, lambda state, batches: None, mesh, None
    )
    state = init_state(PARAMS, OPTIMIZER, strategy, mesh=mesh)
    run(state, batches(1, 0))
    assert sorted(sent) == [3] * 3


@pytest.mark.parametrize(
    "strategy", [*STRATEGIES, local_sgd(), easgd(0.2, num_workers=3)]
)
def test_each_part_that_runs_is_annotated(strategy, monkeypatch):
    monkeypatch.setattr(buckets, "LEAST_BYTES", 3 * 8)  # three of them
    parts = make_round_parts(loss, OPTIMIZER, strategy, "local", exact())
    seen = []

    @contextlib.contextmanager
    def annotate(part):
        seen.append((part, "begins"))
        yield
        seen.append((part, "ends"))

    mesh = worker_mesh(3)
    run = host(parts, exact(), lambda *_: None, mesh, None, annotate)
    state = init_state(PARAMS, OPTIMIZER, strategy, mesh=mesh)
    expected = [x for x, _ in states_of("fused", strategy, 3, 2)]
    for r in range(2):
        seen.clear()
        state, _ = run(state, batches(3, r))
    jax.tree.map(np.testing.assert_array_equal, state.params, expected[-1].params)
    for part, num in ("local steps", 1), ("mean", 3), ("mix", 3):
        assert [when for x, when in seen if x == part] == ["begins", "ends"] * num
    assert seen.index(("local steps", "ends")) < seen.index(("mix", "begins"))
    if strategy.mean_of == "end":  # one after the other
        assert [x for x, _ in seen] == ["local steps"] * 2 + ["mean"] * 6 + ["mix"] * 6


def test_the_mean_and_the_local_steps_run_at_the_same_time():
    both_begun = threading.Barrier(2, timeout=20)

    @contextlib.contextmanager
    def annotate(part):
        if part != "mix":
            both_begun.wait()
        yield

    mesh, strategy = worker_mesh(2), STRATEGIES[0]
    parts = make_round_parts(loss, OPTIMIZER, strategy, "local", exact())
    run = host(parts, exact(), lambda *_: None, mesh, None, annotate)
    state = init_state(PARAMS, OPTIMIZER, strategy, mesh=mesh)
    for r in range(2):
        state, _ = run(state, batches(2, r))


def test_a_trace_names_the_parts_of_a_round(tmp_path):
    with jax.profiler.trace(tmp_path):
        [(state, _)] = states_of("host", STRATEGIES[0], 2, 1)
        jax.block_until_ready(state)
    [file] = tmp_path.rglob("*.xplane.pb")
    events = [
        (event.name, number)
        for plane in jax.profiler.ProfileData.from_file(str(file)).planes
        for number, line in enumerate(plane.lines)  # one of every thread
        for event in line.events
    ]
    threads = {part: x for part, x in events if part in ("local steps", "mean", "mix")}
    assert threads["mean"] != threads["local steps"] == threads["mix"]


@pytest.mark.parametrize("mapping", ["vmap", "pmap", "shard_map"])
def test_each_array_is_mixed_once_and_as_soon_as_all_of_it_is_there(
    mapping, monkeypatch
):
    monkeypatch.setattr(buckets, "LEAST_BYTES", 3 * 8)  # b, and both halves of w
    mesh, strategy = None if mapping == "vmap" else worker_mesh(2), STRATEGIES[1]
    parts = make_round_parts(loss, OPTIMIZER, strategy, "local", exact())
    state = init_state(PARAMS, OPTIMIZER, strategy, mesh=mesh, num_workers=2)
    means, mixes = make_programs(parts, exact(), mesh, mapping)(state, None)
    stepped = {name: getattr(state, name) for name in parts.stepped}
    sent = [jax.eval_shape(mean, state, None) for mean in means]
    mixed = [
        jax.eval_shape(mix, state, stepped, sent[: i + 1], None)
        for i, mix in enumerate(mixes)
    ]
    # Of model, anchor and velocity; the number of the round needs nothing.
    shapes = [sorted(x.shape for x in arrays.values()) for arrays in mixed]
    assert shapes == [[(2,), (2, 3), (2, 3), (2, 3)], [], [(2, 2, 3)] * 3]
