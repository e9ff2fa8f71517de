"""Another number of workers: who stays, who comes, and what is left of who goes."""

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from olsgd_jax import eager_diloco, init_state, worker_mesh
from olsgd_jax.round.difference import Difference, own_state
from olsgd_jax.strategies import STRATEGIES
from olsgd_jax.training import Config
from olsgd_jax.training.components import build
from olsgd_jax.training.recovery.elastic import like_workers, resized
from tests.helpers import as_tree

RATED = ("overlap_local_sgd", "slowmo")  # strategies that can count steps
# Strategies that make their models equal.
EQUAL = ("sync_sgd", "local_sgd", "slowmo", "diloco", "delayed_diloco")
SIZES = [(5, 3), (3, 5)]
MODEL_STATE = {"mean": np.zeros(3), "var": np.ones(3), "count": np.zeros((), np.int32)}


def config_of(strategy, num_workers, reduction="exact"):
    return Config(
        strategy=strategy,
        num_workers=num_workers,
        rated_velocity=strategy in RATED,
        reduction=reduction,
    )


def components_of(config, mesh=None):
    return build(config)._replace(mesh=mesh)


def state_of(strategy, num_workers, reduction="exact"):
    """A state in the middle of a run: all numbers random, shared ones equal."""
    components = components_of(config_of(strategy, num_workers, reduction))
    rng = np.random.default_rng(num_workers)

    def random(tree, shared):
        def leaf(x):
            if jnp.issubdtype(x.dtype, jnp.integer):
                return jnp.full_like(x, 7)
            drawn = rng.uniform(0.1, 1, (1, *x.shape[1:]) if shared else x.shape)
            return jnp.broadcast_to(jnp.asarray(drawn, x.dtype), x.shape)

        return jax.tree.map(leaf, tree)

    state = init_state(
        as_tree(np.zeros(17)),
        components.optimizer,
        components.strategy,
        num_workers=num_workers,
        model_state=MODEL_STATE,
        reduction=components.reduction,
    )
    take_shared = components.reduction.take_shared

    def unsent(kept):
        return take_shared(random(kept, shared=False), random(kept, shared=True))

    models = state.reduction_state.models
    if isinstance(models, Difference):
        reference = random(models.reference, shared=True)
        models = Difference(reference, unsent(models.own))
    own = {x: getattr(state.strategy_state, x) for x in components.strategy.own}
    kept = random(state.strategy_state, shared=True)
    return state._replace(
        params=random(state.params, shared=strategy in EQUAL),
        model_state=random(state.model_state, shared=False),
        opt_state=random(state.opt_state, "opt_state" in components.strategy.common),
        strategy_state=kept._replace(**random(own, shared=False)) if own else kept,
        round=jnp.full_like(state.round, 9),
        reduction_state=state.reduction_state._replace(
            gradients=unsent(state.reduction_state.gradients), models=models
        ),
    )


def plain(state):
    """All arrays of a state in NumPy, random keys as numbers."""
    return jax.device_get(state._replace(key=jax.random.key_data(state.key)))


@functools.cache
def change(strategy, m, n, mesh=None, reduction="exact"):
    """A state before and after the change, as NumPy arrays."""
    state = state_of(strategy, m, reduction)
    config = config_of(strategy, n, reduction)
    shardings = jax.tree.map(lambda x: x.sharding, like_workers(state, m, mesh))
    placed = jax.device_put(state, shardings)
    return plain(state), plain(resized(placed, config, components_of(config, mesh)))


def rows(tree, chosen):
    return jax.tree.map(lambda x: x[chosen], tree)


def close(actual, expected):
    chex.assert_trees_all_close(actual, expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_who_leaves_changes_neither_consensus_nor_virtual_model(strategy):
    before, after = change(strategy, 5, 3)
    for old, new in zip(before.params.values(), after.params.values(), strict=True):
        close(new, old[:3] + old.mean(axis=0) - old[:3].mean(axis=0))
        close(new.mean(axis=0), old.mean(axis=0))
    if strategy != "easgd":  # which weighs the anchor by the number of workers
        models = [
            components_of(config_of(strategy, len(x.round))).strategy.virtual(
                jax.tree.map(lambda x: x.mean(axis=0), x.params),
                jax.tree.map(jnp.asarray, rows(x.strategy_state, 0)),
            )
            for x in (before, after)
        ]
        close(*models)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_what_workers_had_beside_their_models_stays_with_them(strategy):
    for m, n in SIZES:
        before, after = change(strategy, m, n)
        stay = slice(0, 3)
        for part in ("opt_state", "key", "round"):
            old, new = getattr(before, part), getattr(after, part)
            chex.assert_trees_all_equal(rows(new, stay), rows(old, stay))
        if n > m:
            for part in ("params", "model_state", "strategy_state"):
                old, new = getattr(before, part), getattr(after, part)
                chex.assert_trees_all_equal(rows(new, stay), old)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_new_workers_start_from_the_anchor_or_the_consensus(strategy):
    before, after = change(strategy, 3, 5)
    anchor = getattr(before.strategy_state, "anchor", None)
    consensus = jax.tree.map(lambda x: x.mean(axis=0), before.params)
    for worker in (3, 4):
        own = rows(after.params, worker)
        if anchor is None:
            close(own, consensus)
        else:
            chex.assert_trees_all_equal(own, rows(anchor, 0))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_new_workers_have_a_fresh_optimizer_whose_schedule_goes_on(strategy):
    before, after = change(strategy, 3, 5)
    is_common = strategy == "sync_sgd"
    for old, new in zip(
        jax.tree.leaves(before.opt_state), jax.tree.leaves(after.opt_state), strict=True
    ):
        if np.issubdtype(old.dtype, np.integer):
            assert new.tolist() == [7] * 5
        else:
            expected = old[:1] if is_common else np.zeros_like(old[:1])
            np.testing.assert_array_equal(
                new[3:], np.broadcast_to(expected, new[3:].shape)
            )
    assert after.round.tolist() == [9] * 5


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_what_workers_share_is_the_same_on_all_and_what_it_was(strategy, sizes):
    own = components_of(config_of(strategy, sizes[1])).strategy.own
    before, after = (
        [x for n, x in by_field(state).items() if n not in own]
        for state in change(strategy, *sizes)
    )
    for worker in range(sizes[1]):
        chex.assert_trees_all_equal(rows(after, worker), rows(before, 0))


def by_field(state):
    """The fields of a strategy's state by name."""
    return state.strategy_state._asdict() if state.strategy_state else {}


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("strategy", ["delayed_diloco", "eager_diloco"])
def test_progress_that_was_not_sent_keeps_its_mean(strategy, sizes):
    old, new = (by_field(x)["progress"] for x in change(strategy, *sizes))
    for x, y in zip(old.values(), new.values(), strict=True):
        close(y.mean(axis=0), x.mean(axis=0))


def test_counts_of_a_workers_own_optimizer_stay():
    def build():
        return eager_diloco(4, optax.adam(optax.linear_schedule(0.1, 0.0, 10)))

    config = Config(strategy="eager_diloco", num_workers=4)
    state = init_state(
        as_tree(np.zeros(17)), optax.sgd(0.1), build(), num_workers=4, model_state={}
    )
    counted = jax.tree.map(
        lambda x: x + 7 if jnp.issubdtype(x.dtype, jnp.integer) else x,
        state.strategy_state,
    )
    components = components_of(dataclasses.replace(config, num_workers=2))
    shrunk = resized(
        state._replace(strategy_state=counted),
        dataclasses.replace(config, num_workers=2),
        components._replace(strategy=build()),
    )
    counts = [
        x
        for x in jax.tree.leaves(shrunk.strategy_state)
        if jnp.issubdtype(x.dtype, jnp.integer)
    ]
    assert counts
    assert all(x.tolist() == [7, 7] for x in counts)


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("strategy", EQUAL)
def test_models_that_were_equal_are_so_to_the_last_bit(strategy, sizes):
    before, after = change(strategy, *sizes)
    for worker in range(sizes[1]):
        chex.assert_trees_all_equal(rows(after.params, worker), rows(before.params, 0))


@pytest.mark.parametrize(
    ("strategy", "what"), [("sync_sgd", "gradients"), ("cocod_sgd", "models")]
)
def test_what_a_reduction_has_not_sent_is_not_lost(strategy, what):
    def unsent(state):
        kept = getattr(state.reduction_state, what)
        return jax.tree.leaves(own_state(kept)), kept

    (old, _), (new, after) = map(unsent, change(strategy, 5, 3, None, "int8"))
    for x, y in zip(old, new, strict=True):
        close(y, x[:3] + x.mean(axis=0) - x[:3].mean(axis=0))
    (old, before), (new, after) = map(unsent, change(strategy, 3, 5, None, "int8"))
    for x, y in zip(old, new, strict=True):
        np.testing.assert_array_equal(y[:3], x)
        close(y.mean(axis=0), x.mean(axis=0))
    if isinstance(after, Difference):
        for worker in range(5):
            chex.assert_trees_all_equal(
                rows(after.reference, worker), rows(before.reference, 0)
            )


@pytest.mark.parametrize(
    ("strategy", "what"), [("sync_sgd", "gradients"), ("cocod_sgd", "models")]
)
def test_all_workers_get_the_q_of_a_mean_in_low_rank(strategy, what):
    def kept(state):
        return own_state(getattr(state.reduction_state, what))

    old, new = map(kept, change(strategy, 5, 3, None, "low_rank"))
    for x, y in zip(old.error, new.error, strict=True):
        close(y, x[:3] + x.mean(axis=0) - x[:3].mean(axis=0))
    chex.assert_trees_all_equal(new.q, rows(old.q, slice(3)))
    old, new = map(kept, change(strategy, 3, 5, None, "low_rank"))
    for x, y in zip(old.error, new.error, strict=True):
        np.testing.assert_array_equal(y[:3], x)
        close(y.mean(axis=0), x.mean(axis=0))
    for worker in range(5):
        chex.assert_trees_all_equal(rows(new.q, worker), rows(old.q, 0))


@pytest.mark.parametrize("sizes", SIZES)
def test_statistics_keep_their_mean_and_counters_stay(sizes):
    before, after = change("overlap_local_sgd", *sizes)
    for name in ("mean", "var"):
        old, new = before.model_state[name], after.model_state[name]
        close(new.mean(axis=0), old.mean(axis=0))
        assert (new > 0).all()
        joined = new[3:] if sizes == (3, 5) else new
        close(joined, np.broadcast_to(old.mean(axis=0), joined.shape))
    assert after.model_state["count"].tolist() == [7] * sizes[1]


def test_keys_are_those_of_a_run_that_always_had_so_many_workers():
    _, after = change("cocod_sgd", 3, 5)
    np.testing.assert_array_equal(after.key, plain(state_of("cocod_sgd", 5)).key)


# 6 on 4 places lie as groups of two, 3 on 4 are on every place, 4 on 2 lie evenly.
@pytest.mark.parametrize(
    ("m", "n", "places"),
    [
        (6, 4, {"num_workers": 4}),
        (3, 8, {"num_workers": 4}),
        (4, 2, {"num_workers": 2}),
        (3, 4, {"num_workers": 2, "fsdp": 2}),
        (5, 2, {"num_workers": 2, "fsdp": 2}),
    ],
)
@pytest.mark.parametrize(
    ("strategy", "reduction"), [("overlap_local_sgd", "exact"), ("cocod_sgd", "int8")]
)
def test_workers_on_devices_change_as_lanes_do(m, n, places, strategy, reduction):
    _, lanes = change(strategy, m, n, None, reduction)
    _, devices = change(strategy, m, n, worker_mesh(**places), reduction)
    close(devices, lanes)


def test_the_same_change_gives_the_same_bits():
    first = change("overlap_local_sgd", 5, 3)
    again = change.__wrapped__("overlap_local_sgd", 5, 3)
    chex.assert_trees_all_equal(first, again)
