"""The random mask: LOSCAR-SGD's merge, and what it cannot be used with."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from olsgd_jax import (
    cocod_sgd,
    distribute,
    init_state,
    local_sgd,
    overlap_jit,
    overlap_local_sgd,
    random_mask,
    slowmo,
    sync_sgd,
    to_workers,
    worker_mesh,
)
from olsgd_jax.drivers.forms import buckets, fragments
from olsgd_jax.reductions.base import Draws
from tests import test_reductions
from tests.test_reductions import (
    CENTRES,
    EVERYONE,
    OPTIMIZER,
    RATE,
    SIZE,
    SOME,
    TAU,
    M,
    as_rows,
    as_tree,
)

N = 2  # one number of every two
REDUCTION = random_mask(fraction=1 / N)
STRATEGIES = {"cocod_sgd": cocod_sgd(), "local_sgd": local_sgd()}
LEAVES = ((0, 3), (3, SIZE))  # the two arrays that `as_tree` makes of a row


def sent_in(number):
    """Which numbers are sent in a round."""
    sent, key = np.zeros(SIZE, bool), jax.random.fold_in(jax.random.key(0), number)
    for i, (first, last) in enumerate(LEAVES):
        num_groups = -(-(last - first) // N)
        own = jax.random.fold_in(key, i)
        rows = np.asarray(jax.random.randint(own, (num_groups,), 0, N))
        places = rows * num_groups + np.arange(num_groups)
        sent[first + places[places < last - first]] = True
    return sent


def loop(name, presence):
    """Models of all workers after every round; worker i minimises ½ (x − cᵢ)²."""
    x = np.zeros((M, SIZE))
    for number, present in enumerate(presence):
        y = x
        for _ in range(TAU):
            y = y - RATE * (y - CENTRES)
        sent, here = sent_in(number), present[:, None]
        if name == "cocod_sgd":
            mean = x[present].mean(axis=0)
            mixed = np.where(sent, mean + (y - x), y)
        else:
            mixed = np.where(sent, y[present].mean(axis=0), y)
        x = np.where(here, mixed, x)
        yield x


@pytest.mark.parametrize("presence", [EVERYONE, SOME], ids=["all", "some"])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("cocod_sgd", {"mapping": "vmap"}),
        ("cocod_sgd", {"mapping": "pmap"}),
        ("cocod_sgd", {"mapping": "shard_map"}),
        ("cocod_sgd", {"driver": "host"}),
        ("cocod_sgd", {"stream": True}),
        ("local_sgd", {"mapping": "shard_map"}),
    ],
    ids=str,
)
def test_rounds_follow_the_merge(name, options, presence, monkeypatch):
    monkeypatch.setattr(buckets, "LEAST_BYTES", 32)
    mesh = None if options.get("mapping") == "vmap" else worker_mesh(M)
    monkeypatch.setattr(test_reductions, "loop", loop)
    test_reductions.assert_follows(name, presence, mesh, REDUCTION, **options)


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("platform", ["cpu", "gpu", "tpu"])
def test_so_does_the_optax_face(name, platform, monkeypatch):
    monkeypatch.setattr(fragments, "platform_here", lambda: platform)
    mesh = worker_mesh(M)
    tx = distribute(OPTIMIZER, STRATEGIES[name], TAU, reduction=REDUCTION)

    def train_step(state, centre):
        params, opt_state = state
        grads = jax.tree.map(jnp.subtract, params, centre)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state

    params = as_tree(np.zeros(SIZE))
    state = to_workers((params, tx.init(params)), M, mesh)
    step = overlap_jit(train_step, mesh)
    for expected in loop(name, EVERYONE):
        for _ in range(TAU):
            state = step(state, as_tree(CENTRES))
        np.testing.assert_allclose(as_rows(state[0]), expected, atol=1e-12)


@pytest.mark.parametrize("size", [1, 31, 32, 1000])
def test_every_number_is_sent_equally_often(size):
    reduction, own = random_mask(), jnp.zeros(size)

    def sent(number):
        key = jax.random.fold_in(jax.random.key(0), number)
        part = reduction.draw(Draws(shared=key, own=key)).part
        return part.put(jnp.ones_like(part.take(own)), own)

    share = jax.vmap(sent)(jnp.arange(2000)).mean(axis=0)
    # Five standard deviations of the mean of 2,000 draws with a chance of 1/32.
    margin = 5 * (1 / 32 * 31 / 32 / 2000) ** 0.5
    np.testing.assert_allclose(share, 1 / 32, atol=margin)


@pytest.mark.parametrize(
    "strategy", [overlap_local_sgd(pullback=0.6), slowmo(momentum=0.5), sync_sgd()]
)
def test_workers_that_share_more_than_the_mean_refuse_it(strategy):
    message = f"must send whole messages under {strategy.name}, got random_mask; use "
    params = jnp.zeros(3)
    with pytest.raises(ValueError, match=message):
        init_state(params, OPTIMIZER, strategy, num_workers=2, reduction=REDUCTION)
    with pytest.raises(ValueError, match=message):
        distribute(OPTIMIZER, strategy, 2, reduction=REDUCTION).init(params)


def test_a_fraction_of_no_whole_number_is_refused_with_the_nearest():
    message = "fraction must be 1/n for a whole n, got 0.3; pass 1/3 = 0.333333"
    with pytest.raises(ValueError, match=message):
        random_mask(fraction=0.3)
