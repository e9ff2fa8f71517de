"""Laws that strategies obey, and the errors of their builders."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from olsgd_jax import (
    STRATEGIES,
    cocod_sgd,
    delayed_diloco,
    diloco,
    eager_diloco,
    easgd,
    local_sgd,
    low_rank,
    overlap_local_sgd,
    slowmo,
    streaming_diloco,
    sync_sgd,
)
from olsgd_jax.strategies.outer import nesterov
from olsgd_jax.training import Config, build_strategy
from tests import helpers, reference

NESTEROV = optax.sgd(0.1, momentum=0.9, nesterov=True)
ONE_OF_EACH = {
    name: build_strategy(Config(strategy=name, num_workers=4)) for name in STRATEGIES
}


def states_of(strategies, m=4, tau=3, rounds=4, optimizer=NESTEROV, problem=None):
    """Gives the list of states by round, for each strategy."""
    problem = problem or reference.Problem(m, rounds * tau, None, helpers.SIZE)
    runs = list(helpers.run_rounds(problem, optimizer, strategies, tau))
    return {name: [states[name] for states, _ in runs] for name in strategies}


def flat(states):
    return np.stack([helpers.as_flat(state.params) for state in states])


def assert_same_models(states, others):
    np.testing.assert_allclose(flat(states), flat(others), atol=1e-12)


def test_every_strategy_is_known_by_its_own_name():
    assert all(strategy.name == name for name, strategy in ONE_OF_EACH.items())


def test_equal_workers_on_equal_data_stay_equal():
    problem = reference.Problem(4, 12, None, helpers.SIZE)
    problem.centres[:] = problem.centres[:1]
    for states in states_of(ONE_OF_EACH, problem=problem).values():
        models = flat(states)
        np.testing.assert_allclose(models, models[:, :1].repeat(4, 1), atol=1e-12)


def test_what_strategies_share_is_the_same_bits_on_all_workers():
    leaves = []
    for name, states in states_of(ONE_OF_EACH).items():
        own = dict.fromkeys(ONE_OF_EACH[name].own, ())
        shared = [x.strategy_state for x in states]
        leaves += jax.tree.leaves([x._replace(**own) if own else x for x in shared])
    assert leaves
    for leaf in leaves:
        np.testing.assert_array_equal(leaf, np.broadcast_to(leaf[:1], leaf.shape))


def test_local_and_cocod_sgd_of_one_worker_are_plain_sgd():
    runs = states_of({"local": local_sgd(), "cocod": cocod_sgd()}, m=1)
    plain = states_of({"free": overlap_local_sgd(pullback=0.0)}, m=1)["free"]
    assert_same_models(runs["local"], plain)
    assert_same_models(runs["cocod"], plain)


def test_without_pullback_every_worker_trains_alone():
    together = states_of({"free": overlap_local_sgd(pullback=0.0)})["free"]
    everyone = reference.Problem(4, 12, None, helpers.SIZE)
    for worker in range(4):
        alone = reference.Problem(1, 12, None, helpers.SIZE)
        alone.curvature, alone.start = everyone.curvature, everyone.start
        alone.centres = everyone.centres[worker : worker + 1]
        one = states_of({"local": local_sgd()}, problem=alone)["local"]
        np.testing.assert_allclose(
            flat(together)[:, worker], flat(one)[:, 0], atol=1e-12
        )


def test_full_pullback_restarts_every_worker_from_the_anchor():
    for state in states_of({"whole": overlap_local_sgd(1.0, 0.5)})["whole"]:
        anchor = helpers.as_flat(state.strategy_state.anchor)
        np.testing.assert_allclose(helpers.as_flat(state.params), anchor, atol=1e-12)


def test_without_momentum_the_anchor_is_the_mean_of_the_last_start():
    states = states_of({"vanilla": overlap_local_sgd(0.6)})["vanilla"]
    for before, after in zip(states, states[1:], strict=False):
        anchor = helpers.as_flat(after.strategy_state.anchor)[0]
        start = helpers.as_flat(before.params)
        np.testing.assert_allclose(anchor, start.mean(axis=0), atol=1e-12)


def test_cocod_sgd_keeps_the_mean_of_the_ends():
    key = jax.random.key(0)
    start, end = jax.random.normal(key, (2, 4, 7))
    mean = jnp.broadcast_to(start.mean(axis=0), start.shape)
    mixed, _ = cocod_sgd().mix(start, end, mean, ())
    np.testing.assert_allclose(mixed.mean(axis=0), end.mean(axis=0), atol=1e-12)


def test_easgd_keeps_the_sum_of_workers_and_anchor():
    strategy = easgd(0.9, num_workers=4)
    end = jax.random.normal(jax.random.key(0), (4, 7))
    anchor = jnp.broadcast_to(jnp.arange(7.0), (4, 7))
    state = strategy.init(anchor)
    mean = jnp.broadcast_to(end.mean(axis=0), end.shape)
    mixed, state = strategy.mix(anchor, end, mean, state)
    np.testing.assert_allclose(
        mixed.sum(axis=0) + state.anchor[0], end.sum(axis=0) + anchor[0], atol=1e-12
    )


def test_sync_sgd_is_local_sgd_of_single_steps_under_plain_sgd():
    pair = {"sync": sync_sgd(), "local": local_sgd()}
    runs = states_of(pair, tau=1, optimizer=optax.sgd(0.1))
    assert_same_models(runs["sync"], runs["local"])


@pytest.mark.parametrize("rank", [3, 99])
def test_powersgd_of_full_rank_is_sync_sgd(rank):
    runs = states_of({"power": (sync_sgd(), low_rank(rank)), "sync": sync_sgd()})
    assert_same_models(runs["power"], runs["sync"])


def test_powersgd_of_low_rank_is_not_sync_sgd():
    runs = states_of({"power": (sync_sgd(), low_rank(1)), "sync": sync_sgd()})
    assert np.abs(flat(runs["power"]) - flat(runs["sync"])).max() > 1e-3


def test_slowmo_without_momentum_is_local_sgd():
    runs = states_of({"slowmo": slowmo(0.0), "local": local_sgd()})
    assert_same_models(runs["slowmo"], runs["local"])


def test_diloco_with_an_outer_rate_of_one_is_local_sgd():
    runs = states_of({"diloco": diloco(optax.sgd(1.0)), "local": local_sgd()})
    assert_same_models(runs["diloco"], runs["local"])


def test_diloco_with_heavy_ball_momentum_outside_is_slowmo():
    outer = optax.sgd(0.9, momentum=0.6)
    runs = states_of({"diloco": diloco(outer), "slowmo": slowmo(0.6, 0.9)})
    assert_same_models(runs["diloco"], runs["slowmo"])


def test_streaming_diloco_of_one_fragment_without_delay_is_diloco():
    outer = nesterov(0.6, 0.5)
    streaming = streaming_diloco(1, outer, delayed=False)
    runs = states_of({"streaming": streaming, "diloco": diloco(outer)})
    assert_same_models(runs["streaming"], runs["diloco"])


def test_with_an_outer_rate_of_one_delay_applies_progress_a_round_late():
    states = states_of({"delayed": delayed_diloco(optax.sgd(1.0))})["delayed"]
    for before, after in zip(states, states[1:], strict=False):
        progress = helpers.as_flat(before.strategy_state.progress).mean(axis=0)
        moved = flat([before])[0] - flat([after])[0]
        np.testing.assert_allclose(moved, np.tile(progress, (4, 1)), atol=1e-12)


def test_the_mean_of_eager_workers_weighs_new_progress_by_one_in_m():
    states = states_of({"eager": eager_diloco(4, optax.sgd(1.0))})["eager"]
    for before, after in zip(states, states[1:], strict=False):
        old, new = (
            helpers.as_flat(x.strategy_state.progress).mean(axis=0)
            for x in (before, after)
        )
        moved = (flat([before]) - flat([after]))[0].mean(axis=0)
        np.testing.assert_allclose(moved, old + (new - old) / 4, atol=1e-12)


@pytest.mark.parametrize("build", [diloco, lambda outer: eager_diloco(1, outer)])
def test_one_worker_with_an_outer_rate_of_one_is_plain_sgd(build):
    one = states_of({"one": build(optax.sgd(1.0))}, m=1)["one"]
    assert_same_models(one, states_of({"local": local_sgd()}, m=1)["local"])


def test_cocod_sgd_of_momentum_moves_the_virtual_model_by_gradients_alone():
    strategy = cocod_sgd(momentum=0.7)
    start, end = jax.random.normal(jax.random.key(0), (2, 4, 7))
    previous = jnp.broadcast_to(jnp.arange(7.0), (4, 7))
    state = strategy.init(previous)
    mean = jnp.broadcast_to(start.mean(axis=0), start.shape)
    before = strategy.virtual(mean, state)[0]
    mixed, state = strategy.mix(start, end, mean, state)
    after = strategy.virtual(mixed.mean(axis=0, keepdims=True), state)[0]
    # Every round's steps count for (1 - mu) / (1 - mu) = 1.
    moved = (end - start).mean(axis=0)
    np.testing.assert_allclose(after - before, moved, atol=1e-5)


def test_at_a_constant_rate_it_does_not_matter_where_the_velocity_keeps_it():
    rate = optax.constant_schedule(0.1)
    runs = states_of(
        {
            "overlap": overlap_local_sgd(0.6, 0.7),
            "overlap_scaled": overlap_local_sgd(0.6, 0.7, learning_rate=rate),
            "slowmo": slowmo(0.6),
            "slowmo_scaled": slowmo(0.6, learning_rate=rate),
        }
    )
    assert_same_models(runs["overlap"], runs["overlap_scaled"])
    assert_same_models(runs["slowmo"], runs["slowmo_scaled"])


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_half_precision_models_keep_their_dtype(name):
    strategy = ONE_OF_EACH[name]
    params = {"w": jnp.ones((4, 3), jnp.bfloat16), "b": jnp.ones(3, jnp.bfloat16)}
    grads, state = strategy.reduce_grads(params, strategy.init(params))
    mean = strategy.message(params, state)
    mixed, state = strategy.mix(params, grads, mean, state)
    for leaf in jax.tree.leaves((grads, mixed)):
        assert leaf.dtype == jnp.bfloat16


SCHEDULE = optax.linear_schedule(0.1, 0.0, 10)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: overlap_local_sgd(1.5), r"pullback must be in \[0, 1\], got 1.5"),
        (lambda: overlap_local_sgd(-0.1), r"pullback must be in \[0, 1\], got -0.1"),
        (lambda: overlap_local_sgd(float("nan")), r"pullback must be in .*, got nan"),
        (lambda: overlap_local_sgd(0.6, 1.0), r"anchor_momentum must be in \[0, 1\)"),
        (lambda: easgd(9.6, 16), "moving_rate must be at most 1, got 9.6.*diverge;"),
        (lambda: easgd(1.5, 4), "moving_rate must be at most 1, got 1.5.*workers;"),
        (lambda: easgd(0.0, 4), r"moving_rate must be in \(0, inf\), got 0.0"),
        (lambda: easgd(0.9, 0), "num_workers must be at least 1, got 0"),
        (lambda: slowmo(1.0), r"momentum must be in \[0, 1\), got 1.0"),
        (lambda: slowmo(0.5, 0.0), r"step_size must be in \(0, 1e\+30\], got 0.0"),
        (lambda: cocod_sgd(1.0), r"momentum must be in \[0, 1\), got 1.0"),
        (lambda: cocod_sgd(0.5, 0.0), r"step_size must be in .*, got 0.0"),
        (lambda: eager_diloco(0), "num_workers must be at least 1, got 0"),
        (lambda: streaming_diloco(0), "num_fragments must be at least 1, got 0"),
        (
            lambda: streaming_diloco(pullback=0.0),
            r"pullback must be in \(0, 1\], got 0",
        ),
        (lambda: nesterov(0.0), r"outer_learning_rate must be in \(0, inf\), got 0"),
        (lambda: nesterov(0.7, 1.0), r"outer_momentum must be in \[0, 1\), got 1.0"),
    ],
)
def test_arguments_out_of_range_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()


@pytest.mark.parametrize(
    ("builder", "arguments", "message"),
    [
        (overlap_local_sgd, ("0.6",), "pullback must be a number, got '0.6'"),
        (overlap_local_sgd, (True,), "pullback must be a number, got True"),
        (overlap_local_sgd, (0.6, 0.7, 0.1), "learning_rate must be the optimizer's"),
        (slowmo, (0.7, 1.0, 0.1), "learning_rate must be the optimizer's schedule"),
        (easgd, (0.9, 4.0), "num_workers must be a whole number, got 4.0"),
        (diloco, (0.7,), "outer_optimizer must be an optax optimizer, got 0.7; pass"),
        (eager_diloco, (nesterov(),), "num_workers must be a whole number"),
    ],
)
def test_arguments_of_the_wrong_kind_are_refused(builder, arguments, message):
    with pytest.raises(TypeError, match=message):
        inspect.unwrap(builder)(*arguments)  # past the checker of annotations
