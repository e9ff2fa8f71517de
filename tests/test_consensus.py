"""One model out of many: each kind against its definition."""

import gc
import re
import weakref

import chex
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import optax
import pytest

from olsgd_jax import (
    STRATEGIES,
    easgd,
    init_state,
    local_sgd,
    make_round,
    model_of,
    overlap_local_sgd,
    plain_loss,
    spread,
)
from olsgd_jax.training import Config
from olsgd_jax.training.components import build_strategy
from olsgd_jax.workers.sharding import state_shardings

MODELS = np.random.default_rng(0).normal(size=(4, 3))
ANCHOR, VELOCITY = np.random.default_rng(1).normal(size=(2, 3))


def on_mesh(tree, mesh):
    return jax.device_put(tree, state_shardings(tree, mesh))


def state_of(strategy, mesh, models=MODELS, model_state=()):
    state = init_state(jnp.zeros(3), optax.sgd(0.1), strategy, mesh=mesh, num_workers=4)
    return state._replace(
        params=on_mesh(models, mesh), model_state=on_mesh(model_state, mesh)
    )


def overlap_state(strategy, mesh):
    state = state_of(strategy, mesh)
    anchor, velocity = (np.tile(x, (4, 1)) for x in (ANCHOR, VELOCITY))
    return state._replace(
        strategy_state=state.strategy_state._replace(
            anchor=on_mesh(anchor, mesh), velocity=on_mesh(velocity, mesh)
        )
    )


@pytest.mark.parametrize("momentum", [0.0, 0.7])
def test_each_model_is_what_its_definition_says(momentum, mesh):
    strategy = overlap_local_sgd(pullback=0.6, anchor_momentum=momentum)
    state = overlap_state(strategy, mesh)

    mean = MODELS.mean(axis=0)
    velocity = momentum * VELOCITY + (mean - ANCHOR)
    scale = 1 - 0.6 * momentum
    weight, ahead = 0.6 * (1 - momentum) / scale, 0.6 * momentum / scale
    expected = {
        "worker": MODELS[0],
        "consensus": mean,
        "anchor": ANCHOR,
        "virtual": (1 - weight) * mean
        + weight * (ANCHOR + velocity)
        + ahead * velocity,
    }
    for which, model in expected.items():
        params, _ = model_of(state, strategy, which, mesh)
        np.testing.assert_allclose(params, model, rtol=1e-12)


@pytest.mark.parametrize(
    "strategy", [overlap_local_sgd(0.6, 0.7), easgd(0.9, num_workers=4)]
)
def test_rounds_without_gradients_leave_the_virtual_model_where_it_is(strategy, mesh):
    loss = plain_loss(lambda x, batch: 0 * jnp.sum(x))
    overlap_round = make_round(loss, optax.sgd(0.1), strategy, sync_period=1, mesh=mesh)
    state = state_of(strategy, mesh)
    before, _ = model_of(state, strategy, "virtual", mesh)
    for _ in range(3):
        state, _ = overlap_round(state, on_mesh(np.zeros((4, 1)), mesh))
        after, _ = model_of(state, strategy, "virtual", mesh)
        np.testing.assert_allclose(after, before, atol=1e-14)


def test_the_anchor_is_the_one_that_workers_were_last_pulled_to(mesh):
    # At a pullback of 1 they are at the anchor: the mean of the round's start, though
    # the mean of their models has moved on in the round's one step.
    strategy = overlap_local_sgd(pullback=1.0)
    loss = plain_loss(lambda x, batch: jnp.sum(x))
    overlap_round = make_round(loss, optax.sgd(0.1), strategy, sync_period=1, mesh=mesh)
    state, _ = overlap_round(state_of(strategy, mesh), on_mesh(np.zeros((4, 1)), mesh))
    anchor, _ = model_of(state, strategy, "anchor", mesh)
    np.testing.assert_allclose(anchor, MODELS.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(state.params, np.tile(anchor, (4, 1)), rtol=1e-12)


def test_model_state_is_averaged_but_for_whole_numbers_and_worker_0(mesh):
    strategy = overlap_local_sgd(pullback=0.5)
    model_state = {"mean": np.array([1.0, 2.0, 3.0, 6.0]), "count": np.arange(4) + 5}
    state = state_of(strategy, mesh, model_state=model_state)
    for which in ("consensus", "anchor", "virtual"):
        _, got = model_of(state, strategy, which, mesh)
        chex.assert_trees_all_equal(got, {"mean": 3.0, "count": 5})
    _, got = model_of(state, strategy, "worker", mesh)
    chex.assert_trees_all_equal(got, {"mean": 1.0, "count": 5})


def test_the_model_is_on_one_device(mesh):
    params, _ = model_of(state_of(local_sgd(), mesh), local_sgd(), "consensus", mesh)
    assert len(params.devices()) == 1


def test_the_same_model_of_a_later_state_compiles_nothing(mesh):
    num_traces = 0

    def counted(mean, state):
        nonlocal num_traces
        num_traces += 1
        return mean

    strategy = local_sgd()._replace(virtual=counted)
    for scale in (1.0, 2.0):
        state = state_of(strategy, mesh, scale * MODELS)
        model_of(state, strategy, "virtual", mesh)
    assert num_traces == 1


def test_strategies_that_are_gone_are_not_kept():
    gone = []
    for _ in range(20):
        strategy = local_sgd()._replace(virtual=lambda mean, state: mean)
        gone.append(weakref.ref(strategy.virtual))
        model_of(state_of(strategy, None), strategy, "virtual")
    del strategy
    gc.collect()
    assert sum(x() is not None for x in gone) <= 8


def test_a_strategy_without_an_anchor_is_an_error(mesh):
    with pytest.raises(ValueError, match="'anchor' under local_sgd, which keeps none"):
        model_of(state_of(local_sgd(), mesh), local_sgd(), "anchor", mesh)


def test_the_error_names_all_strategies_that_have_an_anchor():
    with pytest.raises(ValueError, match="anchor") as error:
        model_of(state_of(local_sgd(), None), local_sgd(), "anchor")
    for name in STRATEGIES.keys() - {"local_sgd"}:
        state = build_strategy(Config(strategy=name)).init(jnp.zeros(3))
        is_named = re.search(rf"\b{name}\b", str(error.value)) is not None
        assert is_named == hasattr(state, "anchor")


def test_an_unknown_model_is_an_error(monkeypatch):
    # The tests' check of annotations would be first to refuse it.
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    with pytest.raises(ValueError, match="which must be one of worker, consensus, an"):
        model_of(state_of(local_sgd(), None), local_sgd(), "best")


def test_the_spread_is_the_sum_of_the_models_variances(mesh):
    # meanᵢ |xᵢ − x̄|² adds up the variances of all coordinates.
    state = state_of(local_sgd(), mesh)
    np.testing.assert_allclose(
        spread(state, mesh), MODELS.var(axis=0).sum(), rtol=1e-12
    )


def test_the_spread_counts_every_array_of_a_model(mesh):
    params = on_mesh({"a": MODELS, "b": {"c": 2 * MODELS[:, :1]}}, mesh)
    state = state_of(local_sgd(), mesh)._replace(params=params)
    expected = MODELS.var(axis=0).sum() + 4 * MODELS[:, 0].var()
    np.testing.assert_allclose(spread(state, mesh), expected, rtol=1e-12)


def test_equal_workers_have_no_spread(mesh):
    equal = np.tile([1.0, 2.0, 4.0], (4, 1))
    assert spread(state_of(local_sgd(), mesh, equal), mesh) == 0
