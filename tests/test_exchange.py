"""A mean in two exchanges: the same numbers, each beside a step of its own."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from olsgd_jax import (
    WORKERS,
    cocod_sgd,
    init_state,
    make_round,
    make_worker_round,
    overlap_local_sgd,
    plain_loss,
    worker_mesh,
)
from olsgd_jax.drivers.forms import exchange
from olsgd_jax.drivers.forms.base import flat_form
from olsgd_jax.drivers.forms.exchange import exchange_form
from olsgd_jax.drivers.platforms import Platform
from tests import helpers

OPTIMIZER = optax.sgd(0.1, momentum=0.9)
OVERLAP = overlap_local_sgd(0.6, 0.7)
# Sizes that neither fragments nor workers divide, and two dtypes.
PARAMS = {"w": jnp.arange(7.0), "half": jnp.ones((2, 5), jnp.float32)}


@pytest.fixture(autouse=True)
def as_on_a_tpu(monkeypatch):
    """Encloses every step, as only TPUs need; test_compressed.py has the others."""
    monkeypatch.setattr(exchange, "platform_here", lambda: "tpu")


@plain_loss
def loss(params, centre):
    parts = jax.tree.map(lambda x: jnp.sum(jnp.sin(x)).astype(jnp.float64), params)
    return centre * optax.tree.sum(parts)


def after_rounds(form, mesh, strategy=OVERLAP, tau=4, num_workers=4):
    """The state after three rounds; form None is the mesh's own."""
    run = make_round(
        loss,
        OPTIMIZER,
        strategy,
        sync_period=tau,
        mesh=mesh,
        platform=form and Platform(form, {}),
    )
    state = init_state(PARAMS, OPTIMIZER, strategy, mesh=mesh, num_workers=num_workers)
    for r in range(3):
        batches = jax.random.normal(jax.random.key(r), (num_workers, tau))
        state, _ = run(state, batches)
    return state


def assert_same_but_for_rounding(ours, plain):
    # Exchanges add up in the order of the workers, other sums in an order of their own.
    for name, leaf in plain.params.items():
        np.testing.assert_array_almost_equal_nulp(
            np.asarray(ours.params[name]), np.asarray(leaf), nulp=8
        )


@pytest.mark.parametrize("strategy", [OVERLAP, cocod_sgd()], ids=lambda x: x.name)
@pytest.mark.parametrize("tau", [2, 3, 6, 7])
def test_exchanges_give_the_mean(strategy, tau, mesh):
    ours = after_rounds(exchange_form(flat_form(), mesh), mesh, strategy, tau)
    assert_same_but_for_rounding(ours, after_rounds(None, mesh, strategy, tau))


def test_every_worker_gets_the_same_bits(mesh):
    anchor = after_rounds(exchange_form(flat_form(), mesh), mesh).strategy_state.anchor
    for leaf in jax.tree.leaves(anchor):
        np.testing.assert_array_equal(leaf, np.broadcast_to(leaf[:1], leaf.shape))


@pytest.mark.parametrize("shape", [{"data": 2}, {"fsdp": 2}], ids=str)
def test_so_do_workers_of_several_devices(shape):
    mesh = worker_mesh(2, **shape)
    ours = after_rounds(exchange_form(flat_form(mesh), mesh), mesh, num_workers=2)
    assert_same_but_for_rounding(ours, after_rounds(None, None, num_workers=2))


@pytest.mark.parametrize(("tau", "places"), [(1, 4), (4, 2)])
def test_single_steps_and_places_of_several_workers_go_another_way(tau, places):
    mesh = worker_mesh(places)
    used = []

    def otherwise(*args):
        used.append(args[-1])
        return flat_form(mesh)(*args)

    ours = after_rounds(exchange_form(otherwise, mesh), mesh, tau=tau)
    assert used == [tau]
    assert_same_but_for_rounding(ours, after_rounds(None, mesh, tau=tau))


def one_step():
    """The jaxpr of a local step with what is sent beside it."""
    worker_round = make_worker_round(
        loss, OPTIMIZER, OVERLAP, form=exchange_form(flat_form())
    )
    state = init_state(PARAMS, OPTIMIZER, OVERLAP, num_workers=4)
    one = jax.tree.map(lambda x: x[0], state)
    jaxpr = jax.make_jaxpr(worker_round, axis_env=[(WORKERS, 4)])(one, jnp.ones(4))
    [scan] = [e for e in jaxpr.eqns if "scan" in str(e.primitive)]
    return scan.params["jaxpr"].jaxpr


def test_an_exchange_and_the_step_beside_it_do_not_wait_for_each_other():
    step = one_step()
    assert "cond" not in helpers.upstream_of("all_to_all", step)
    assert "all_to_all" not in helpers.upstream_of("cond", step)
    # Half of the models, cut for four workers and filled up: 7 to 8, and 10 to 16.
    sent = [e.invars[0].aval for e in step.eqns if e.primitive.name == "all_to_all"]
    assert sorted((x.size, x.dtype.name) for x in sent) == [
        (4, "float64"),
        (8, "float32"),
    ]


def test_a_step_has_a_computation_of_its_own_for_what_it_changes():
    [enclosed] = [e for e in one_step().eqns if e.primitive.name == "cond"]
    assert "cos" in str(enclosed.params["branches"])
    changed = PARAMS, OPTIMIZER.init(PARAMS), jnp.zeros(())  # the last is the loss
    shapes = [x.shape for x in jax.tree.leaves(changed)]
    assert sorted(x.aval.shape for x in enclosed.outvars) == sorted(shapes)


def test_what_no_step_changes_does_not_wait_for_what_is_sent():
    # The anchor and its velocity, which therefore need no place in the loop.
    _, barrier = [e for e in one_step().eqns if "barrier" in e.primitive.name]
    params = [x.shape for x in jax.tree.leaves(PARAMS)]
    # After what was sent, of two dtypes.
    assert [x.aval.shape for x in barrier.outvars[2:]] == params
