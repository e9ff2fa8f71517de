"""A round without its mean: every worker goes its own way, and nothing is sent."""

from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.stages import Wrapped

from olsgd_jax import (
    cocod_sgd,
    init_state,
    local_sgd,
    make_round,
    overlap_local_sgd,
    plain_loss,
    send_nothing,
    slowmo,
    sync_sgd,
    worker_mesh,
)
from olsgd_jax.drivers.forms.base import flat_form, fragments_form, held_form
from olsgd_jax.drivers.forms.buckets import buckets_form
from olsgd_jax.drivers.forms.exchange import exchange_form
from olsgd_jax.drivers.platforms import Platform
from olsgd_jax.round.worker_round import tree_form

OPTIMIZER, TAU, NUM_WORKERS = optax.sgd(0.1, momentum=0.9), 4, 3
PARAMS = {"w": jnp.arange(6.0).reshape(2, 3), "b": jnp.ones(3)}
OVERLAP = overlap_local_sgd(0.6, 0.7)
BLOCKING = [sync_sgd(), local_sgd(), slowmo(0.5)]
FORMS = {
    "tree": tree_form,
    "held": held_form,
    "flat": flat_form(),
    "buckets": buckets_form(),
    "fragments": fragments_form(),
    "exchange": exchange_form(flat_form()),
}


@plain_loss
def loss(params, x):
    return jnp.sum(jnp.tanh(x @ params["w"] + params["b"]) ** 2)


def batches(round_number):
    shape = NUM_WORKERS, TAU, 4, 2
    return jax.random.normal(jax.random.key(round_number), shape)


def apart(strategy, **options):
    """All workers on a mesh, after two rounds without communication."""
    mesh = worker_mesh(NUM_WORKERS)
    run = make_round(
        loss,
        OPTIMIZER,
        strategy,
        sync_period=TAU,
        mesh=mesh,
        reduction=send_nothing(),
        **options,
    )
    state = init_state(PARAMS, OPTIMIZER, strategy, mesh=mesh)
    for number in range(2):
        state, _ = run(state, batches(number))
    return run, state


def alone(strategy, worker):
    """One worker that has no others, whose mean is therefore its own."""
    run = make_round(loss, OPTIMIZER, strategy, sync_period=TAU)
    state = init_state(PARAMS, OPTIMIZER, strategy, num_workers=1)
    for number in range(2):
        state, _ = run(state, batches(number)[worker : worker + 1])
    return jax.tree.map(lambda x: x[0], state.params)


def assert_all_go_their_own_way(strategy, state):
    for worker in range(NUM_WORKERS):
        own = jax.tree.map(lambda x, i=worker: x[i], state.params)
        jax.tree.map(
            lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-12),
            own,
            alone(strategy, worker),
        )


def assert_nothing_is_sent(run, state):
    text = cast(Wrapped, run).lower(state, batches(0)).as_text()
    assert "all_reduce" not in text
    assert "all_to_all" not in text


@pytest.mark.parametrize("strategy", [*BLOCKING, OVERLAP], ids=lambda x: x.name)
def test_every_strategy_goes_without(strategy):
    run, state = apart(strategy)
    assert_nothing_is_sent(run, state)
    assert_all_go_their_own_way(strategy, state)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_takes_the_mean_it_is_given(form):
    run, state = apart(OVERLAP, platform=Platform(FORMS[form], {}))
    assert_nothing_is_sent(run, state)
    assert_all_go_their_own_way(OVERLAP, state)


@pytest.mark.parametrize("options", [{"driver": "host"}, {"stream": True}], ids=str)
def test_so_do_the_host_driver_and_streamed_rounds(options):
    _, state = apart(cocod_sgd(), **options)
    assert_all_go_their_own_way(cocod_sgd(), state)
