"""Rounds that some workers miss: the equations, and what absence may not change."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from olsgd_jax import (
    WORKERS,
    cocod_sgd,
    delayed_diloco,
    diloco,
    eager_diloco,
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
    streaming_diloco,
    sync_sgd,
    worker_mean,
    worker_mesh,
)
from olsgd_jax.drivers.forms.base import flat_form, fragments_form
from olsgd_jax.round.participation import of_present, over_present
from olsgd_jax.round.state import check_present
from olsgd_jax.round.worker_round import tree_form
from olsgd_jax.strategies.outer import nesterov
from tests import helpers, reference, reference_absent
from tests.test_against_reference import first_q, fragment_of, rate, schedule

M, TAU, ROUNDS = 6, 3, 8
PRESENT = np.random.default_rng(0).random((ROUNDS, M)) < 0.6
PRESENT[2], PRESENT[5] = False, True
PRESENT[3] = np.arange(M) == 4
OUTER, OF_OUTER = nesterov(0.6, 0.5), {"rate": 0.6, "momentum": 0.5}
# Per strategy: the library's, and the reference's loop.
STRATEGIES = {
    "sync_sgd": (sync_sgd(), reference_absent.sync_sgd, {}),
    "local_sgd": (local_sgd(), reference_absent.local_sgd, {}),
    "slowmo": (
        slowmo(0.6, 0.9, learning_rate=schedule),
        reference_absent.slowmo,
        {"beta": 0.6, "s": 0.9, "rate": rate},
    ),
    "easgd": (easgd(0.9, M), reference_absent.easgd, {"moving_rate": 0.9}),
    "cocod_sgd": (cocod_sgd(), reference_absent.cocod_sgd, {}),
    "cocod_momentum": (
        cocod_sgd(momentum=0.7),
        reference_absent.cocod_sgd,
        {"mu": 0.7, "nu": 0.3},
    ),
    "diloco": (diloco(OUTER), reference_absent.diloco, OF_OUTER),
    "delayed_diloco": (
        delayed_diloco(OUTER),
        reference_absent.delayed_diloco,
        OF_OUTER,
    ),
    "eager_diloco": (eager_diloco(M, OUTER), reference_absent.eager_diloco, OF_OUTER),
    "streaming_diloco": (
        streaming_diloco(3, OUTER),
        reference_absent.streaming_diloco,
        {"alpha": 0.5, "delayed": True, "fragment_of": fragment_of(3), **OF_OUTER},
    ),
    "overlap": (
        overlap_local_sgd(0.6),
        reference_absent.overlap_local_sgd,
        {"alpha": 0.6, "beta": 0.0},
    ),
    "overlap_momentum": (
        overlap_local_sgd(0.6, 0.7),
        reference_absent.overlap_local_sgd,
        {"alpha": 0.6, "beta": 0.7},
    ),
    "overlap_scaled": (
        overlap_local_sgd(0.6, 0.7, learning_rate=schedule),
        reference_absent.overlap_local_sgd,
        {"alpha": 0.6, "beta": 0.7, "rate": rate},
    ),
    "powersgd": (
        sync_sgd(),
        reference_absent.powersgd,
        {"shape": helpers.MATRIX, "q": first_q(2)},
    ),
}
# All others have the exact mean.
REDUCTIONS = {"powersgd": low_rank(2)}
# What all workers share beside the strategy's state.
COMMON = {"sync_sgd": ("params", "opt_state"), "slowmo": ("params",)}
COMMON["powersgd"] = COMMON["sync_sgd"]
COMMON["diloco"] = COMMON["delayed_diloco"] = ("params",)
DELAYED = tuple(n for n, (s, *_) in STRATEGIES.items() if s.mean_of == "start")
WAYS = {
    "vmap": {},
    "pmap": {"places": M, "mapping": "pmap"},
    "shard_map": {"places": M},
    "lanes of places": {"places": 2},
    "stream": {"stream": True},
    "host": {"places": M, "driver": "host"},
}
OPTIMIZER = helpers.optimizers(schedule)["nesterov"]
PROBLEM = reference.Problem(M, ROUNDS * TAU, None, helpers.SIZE)


def names_of(way):
    match way:
        case "stream":
            return DELAYED
        case "host":
            return "cocod_sgd", "overlap_scaled", "eager_diloco", "streaming_diloco"
    return tuple(STRATEGIES)


@functools.cache
def first_states_and_rounds(way):
    options = dict(WAYS[way])
    places = options.pop("places", None)
    mesh = None if places is None else worker_mesh(places)
    loss = plain_loss(helpers.quadratic_loss(PROBLEM.curvature))
    start, states, rounds = helpers.as_tree(PROBLEM.start), {}, {}
    for name in names_of(way):
        strategy, reduction = STRATEGIES[name][0], REDUCTIONS.get(name, exact())
        states[name] = init_state(
            start,
            OPTIMIZER,
            strategy,
            mesh=mesh,
            num_workers=M,
            reduction=reduction,
        )
        rounds[name] = make_round(
            loss,
            OPTIMIZER,
            strategy,
            sync_period=TAU,
            mesh=mesh,
            reduction=reduction,
            **options,
        )

    def all_rounds(states, batches, present):
        return {n: rounds[n](states[n], batches, present) for n in states}

    # One compilation for all, with a mask that is known only when it runs.
    return states, all_rounds if way == "host" else jax.jit(all_rounds)


def run(way, poison=False):
    """Gives all strategies' states and records, before the first round and after each.

    With `poison` the batches of absent workers are NaN.
    """
    states, all_rounds = first_states_and_rounds(way)
    history = [(in_numpy(states), None)]
    for r, present in enumerate(PRESENT):
        centres = PROBLEM.centres[:, r * TAU : (r + 1) * TAU].copy()
        if poison:
            centres[~present] = np.nan
        results = all_rounds(states, helpers.as_tree(centres), present)
        states = {name: state for name, (state, _) in results.items()}
        records = {name: record for name, (_, record) in results.items()}
        history.append((in_numpy(states), jax.tree.map(np.asarray, records)))
    return history


def in_numpy(states):
    without_keys = {name: state._replace(key=()) for name, state in states.items()}
    return jax.tree.map(np.asarray, without_keys)


rounds_of = functools.cache(run)


@pytest.mark.parametrize("way", WAYS)
def test_the_rounds_follow_the_equations(way, subtests):
    def nesterov():
        return reference.nesterov(rate, 0.9, 1e-2)

    for name in names_of(way):
        _, loop, arguments = STRATEGIES[name]
        team = reference_absent.Team(PROBLEM, TAU, nesterov)
        expected = list(loop(team, PRESENT, **arguments))
        with subtests.test(name):
            for (states, records), (X, z, losses) in zip(
                rounds_of(way)[1:], expected, strict=True
            ):
                state = states[name]
                np.testing.assert_allclose(records[name].loss, losses, rtol=1e-12)
                np.testing.assert_allclose(helpers.as_flat(state.params), X, atol=1e-12)
                if z is not None:
                    anchors = helpers.as_flat(state.strategy_state.anchor)
                    expected = np.tile(z, (M, 1))
                    np.testing.assert_allclose(anchors, expected, atol=1e-12)


def strategy_fields(name, state, *, own):
    """The fields of a strategy's state that are, or are not, a worker's own."""
    fields = getattr(state.strategy_state, "_fields", ())
    is_own = STRATEGIES[name][0].own
    return [getattr(state.strategy_state, x) for x in fields if (x in is_own) == own]


def shared_part(name, state):
    shared = [getattr(state, field) for field in COMMON.get(name, ())]
    q = getattr(state.reduction_state.gradients, "q", ())
    return shared, strategy_fields(name, state, own=False), q, state.round


def own_part(name, state):
    fields = {"params", "opt_state", "model_state"} - set(COMMON.get(name, ()))
    own = [getattr(state, field) for field in sorted(fields)]
    error = getattr(state.reduction_state.gradients, "error", ())
    return own, strategy_fields(name, state, own=True), error


@pytest.mark.parametrize("way", WAYS)
def test_what_workers_share_is_the_same_bits_on_all_of_them(way):
    for states, _ in rounds_of(way):
        for name, state in states.items():
            for leaf in jax.tree.leaves(shared_part(name, state)):
                np.testing.assert_array_equal(leaf, leaf[:1].repeat(M, axis=0))


@pytest.mark.parametrize("way", WAYS)
def test_what_is_an_absent_workers_own_stays_to_the_bit(way):
    states = [states for states, _ in rounds_of(way)]
    for before, after, present in zip(states, states[1:], PRESENT, strict=False):
        for name in before:
            jax.tree.map(
                lambda x, y, here=present: np.testing.assert_array_equal(
                    x[~here], y[~here]
                ),
                own_part(name, before[name]),
                own_part(name, after[name]),
            )


@pytest.mark.parametrize("way", WAYS)
def test_a_round_without_anyone_is_counted_and_changes_nothing_else(way):
    before, after = rounds_of(way)[2][0], rounds_of(way)[3][0]
    for name, state in after.items():
        np.testing.assert_array_equal(state.round, [3] * M)
        uncounted = state._replace(round=before[name].round)
        jax.tree.map(np.testing.assert_array_equal, uncounted, before[name])


@pytest.mark.parametrize("way", ["vmap", "shard_map"])
def test_a_nan_in_an_absent_workers_batches_changes_nothing(way):
    for ours, clean in zip(run(way, poison=True), rounds_of(way), strict=True):
        jax.tree.map(np.testing.assert_array_equal, ours, clean)


def test_every_worker_present_gives_the_bits_of_no_mask(mesh):
    # Enough workers and rounds for a program with a mask to round another bit.
    strategies = [sync_sgd(), local_sgd(), easgd(0.9, 12), overlap_local_sgd(0.6, 0.7)]
    batches = jax.random.normal(jax.random.key(0), (12, 2, 4, 3), jnp.float32)
    params = {"w": jnp.ones((3, 5), jnp.float32), "b": jnp.ones(5, jnp.float32)}
    for strategy in strategies:
        states = []
        overlap_round = make_round(
            tanh_loss, optax.sgd(0.1), strategy, sync_period=2, mesh=mesh
        )
        for present in ({}, {"present": jnp.ones(12, bool)}):
            state = init_state(
                params, optax.sgd(0.1), strategy, mesh=mesh, num_workers=12
            )
            for _ in range(3):
                state, _ = overlap_round(state, batches, **present)
            states.append((state.params, state.strategy_state))
        jax.tree.map(np.testing.assert_array_equal, *states)


@plain_loss
def tanh_loss(params, x):
    return jnp.sum(jnp.tanh(x @ params["w"] + params["b"]) ** 2)


@pytest.mark.parametrize("shared", ["data", "fsdp"])
def test_the_devices_of_a_worker_miss_a_round_together(shared):
    strategy = overlap_local_sgd(0.6, 0.7)
    params = {"w": jnp.ones((3, 4)), "b": jnp.ones(4)}
    states = []
    for mesh in (None, worker_mesh(3, **{shared: 2})):
        overlap_round = make_round(
            tanh_loss, optax.sgd(0.1), strategy, sync_period=2, mesh=mesh
        )
        state = init_state(params, optax.sgd(0.1), strategy, mesh=mesh, num_workers=3)
        for r in (0, 4, 6):
            batches = jax.random.normal(jax.random.key(r), (3, 2, 4, 3))
            state, _ = overlap_round(state, batches, present=PRESENT[r, :3])
        states.append((state.params, state.strategy_state))
    jax.tree.map(functools.partial(np.testing.assert_allclose, atol=1e-12), *states)


def test_easgd_keeps_the_sum_of_workers_and_anchor():
    strategy, still = easgd(0.9, num_workers=4), optax.sgd(0.0)
    state = init_state(jnp.zeros(()), still, strategy, num_workers=4)
    state = state._replace(params=jnp.array([1.0, 2.0, 4.0, 8.0]))
    run_round = make_round(scalar_loss, still, strategy, sync_period=1)
    present = np.array([True, False, False, True])
    state, _ = run_round(state, jnp.zeros((4, 1)), present=present)
    np.testing.assert_allclose(state.params.sum() + state.strategy_state.anchor, 15.0)
    np.testing.assert_allclose(state.strategy_state.anchor, 0.9 / 4 * 9.0)


scalar_loss = plain_loss(lambda x, centre: (x - centre) ** 2 / 2)


def stats_after(strategy, policy):
    """The running means and counts of three workers, of which the last is absent."""

    def loss(params, stats, batch, key):
        stats = {"mean": (stats["mean"] + batch) / 2, "count": stats["count"] + 1}
        return 0.0 * params, stats

    still = optax.sgd(0.0)
    state = init_state(
        jnp.zeros(()),
        still,
        strategy,
        num_workers=3,
        model_state={"mean": jnp.zeros(()), "count": jnp.zeros((), jnp.int32)},
    )
    means = jnp.array([2.0, 4.0, 100.0])
    state = state._replace(model_state={**state.model_state, "mean": means})
    run_round = make_round(
        loss, still, strategy, sync_period=1, model_state_policy=policy
    )
    present = np.array([True, True, False])
    state, _ = run_round(state, jnp.array([[4.0], [8.0], [16.0]]), present=present)
    np.testing.assert_array_equal(state.model_state["count"], [1, 1, 0])
    return state.model_state["mean"].tolist()


@pytest.mark.parametrize("strategy", [sync_sgd(), local_sgd(), cocod_sgd()])
def test_local_model_state_moves_where_a_worker_is_present(strategy):
    assert stats_after(strategy, "local") == [3.0, 6.0, 100.0]


def test_averaged_model_state_is_the_mean_of_those_present():
    # They go 2 → 3 and 4 → 6; a delayed mean is of 2 and 4, and half-way to it is
    # where they end.
    for strategy in (sync_sgd(), local_sgd()):
        assert stats_after(strategy, "averaged") == [4.5, 4.5, 100.0]
    assert stats_after(cocod_sgd(), "averaged") == [3.0, 4.5, 100.0]


FORMS = {"tree": tree_form, "flat": flat_form(), "fragments": fragments_form()}


def traced_round(form, strategy):
    """One worker's round with a mask, and its arguments of all workers."""
    worker_round = make_worker_round(tanh_loss, OPTIMIZER, strategy, form=form)
    params = {"w": jnp.ones((3, 5)), "b": jnp.ones(5)}
    state = init_state(params, OPTIMIZER, strategy, num_workers=M)
    return worker_round, (state, jnp.ones((M, TAU, 2, 3)), jnp.ones(M, bool))


@pytest.mark.parametrize("form", ["tree", "flat"])
@pytest.mark.parametrize("name", DELAYED)
def test_the_mean_of_those_present_and_the_local_steps_do_not_wait(name, form):
    worker_round, args = traced_round(FORMS[form], STRATEGIES[name][0])
    one = jax.tree.map(lambda x: x[0], args)
    jaxpr = jax.make_jaxpr(worker_round, axis_env=[(WORKERS, M)])(*one).jaxpr
    assert "scan" not in helpers.upstream_of("psum", jaxpr)
    assert "psum" not in helpers.upstream_of("scan", jaxpr)
    sent = [eqn for eqn in jaxpr.eqns if eqn.primitive.name == "psum"]
    # The number of those present has no collective of its own in a vector.
    assert sum(len(eqn.invars) for eqn in sent) == {"tree": 3, "flat": 1}[form]


@pytest.mark.parametrize("form", ["tree", "flat", "fragments"])
def test_a_worker_sends_two_numbers_beside_its_model(form):
    worker_round, args = traced_round(FORMS[form], cocod_sgd())
    filling = 2 if form == "fragments" else 0  # to three fragments of equal size
    sent = payload_bytes(worker_round, *args, num_workers=4)
    assert sent == 8 * (3 * 5 + 5 + 2 + filling)


def test_more_workers_than_bfloat16_can_count_are_counted():
    present = jnp.arange(300) != 7  # 299 is no number of bfloat16

    def worker(x, present):
        return over_present(worker_mean(of_present(x, present)))[1]

    models = jnp.ones(300, jnp.bfloat16)
    counts = jax.vmap(worker, axis_name="workers")(models, present)
    np.testing.assert_array_equal(counts, 299)


def test_a_mean_in_half_precision_is_rounded_once():
    # 16 / 7 in bfloat16 is too small by a 500th, and would make models smaller.
    sent = (
        jnp.linspace(1, 2, 16).astype(jnp.bfloat16),
        jnp.full((16, 2), 7.0, jnp.float32),
    )
    mean, _ = jax.vmap(over_present, axis_name=WORKERS)(sent)
    exact = np.asarray(sent[0], np.float64) * 16 / 7
    np.testing.assert_array_equal(mean, exact.astype(jnp.bfloat16))


@pytest.mark.parametrize("driver", ["fused", "host"])
@pytest.mark.parametrize("shape", [(3,), (4, 1)])
def test_a_mask_for_another_number_of_workers_is_refused(shape, driver):
    strategy = overlap_local_sgd(0.6)
    state = init_state(jnp.zeros(()), OPTIMIZER, strategy, num_workers=4)
    overlap_round = make_round(
        scalar_loss, OPTIMIZER, strategy, sync_period=1, driver=driver
    )
    message = "present must have a bool for each of 4 workers, got shape "
    with pytest.raises(ValueError, match=re.escape(f"{message}{shape}")):
        overlap_round(state, jnp.zeros((4, 1)), present=np.ones(shape, bool))


@pytest.mark.parametrize("present", [np.ones(2), [True, False]])
def test_a_mask_of_another_kind_is_refused(present):
    state = init_state(jnp.zeros(()), OPTIMIZER, local_sgd(), num_workers=2)
    with pytest.raises(TypeError, match="present must be an array of bools, got "):
        check_present(present, state)
