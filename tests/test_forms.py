"""Forms of the mean: other programs, the same numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from olsgd_jax import (
    WORKERS,
    cocod_sgd,
    exact,
    init_state,
    local_sgd,
    make_round,
    make_worker_round,
    on_workers,
    overlap_local_sgd,
    payload_bytes,
    plain_loss,
    sync_sgd,
)
from olsgd_jax.drivers.forms.base import flat_form, fragments_form, held_form
from olsgd_jax.drivers.forms.fragments import (
    cut_fragments,
    join_fragments,
    send_fragment,
)
from olsgd_jax.round.worker_round import tree_form
from tests import helpers

TAU, OPTIMIZER = 3, optax.sgd(0.1, momentum=0.9)
STRATEGIES = [overlap_local_sgd(0.6, 0.7), cocod_sgd()]
FORMS = {"held": held_form, "flat": flat_form(), "fragments": fragments_form()}
# Odd sizes, that no sync period divides, and two dtypes.
PARAMS = {
    "w": jnp.arange(7.0),
    "half": jnp.ones((2, 5), jnp.float32),
    "scalar": jnp.array(2.0),
}


@plain_loss
def loss(params, centre):
    parts = jax.tree.map(lambda x: jnp.sum(jnp.sin(x)).astype(jnp.float64), params)
    return centre * optax.tree.sum(parts)


def params_after(strategy, form, mesh, rounds=3):
    worker_round = make_worker_round(loss, OPTIMIZER, strategy, form=form)
    run = jax.jit(on_workers(worker_round, mesh))
    state = init_state(PARAMS, OPTIMIZER, strategy, mesh=mesh, num_workers=4)
    for r in range(rounds):
        state, _ = run(state, jax.random.normal(jax.random.key(r), (4, TAU)))
    return state.params


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda x: x.name)
@pytest.mark.parametrize("form", FORMS.values(), ids=list(FORMS))
def test_every_form_gives_the_same_bits(strategy, form, mesh):
    ours = params_after(strategy, form, mesh)
    plain = params_after(strategy, tree_form, mesh)
    jax.tree.map(np.testing.assert_array_equal, ours, plain)


def round_jaxpr(form, strategy=STRATEGIES[0]):
    worker_round = make_worker_round(loss, OPTIMIZER, strategy, form=form)
    state = init_state(PARAMS, OPTIMIZER, strategy, num_workers=4)
    one = jax.tree.map(lambda x: x[0], state)
    axes = [(WORKERS, 4)]
    return jax.make_jaxpr(worker_round, axis_env=axes)(one, jnp.ones(TAU)).jaxpr


def test_the_flat_form_sends_one_vector_for_every_dtype():
    sent = [
        eqn for eqn in round_jaxpr(flat_form()).eqns if eqn.primitive.name == "psum"
    ]
    assert sorted(eqn.invars[0].aval.size for eqn in sent) == [8, 10]


def test_nobody_gets_the_held_mean_or_the_steps_before_both_are_there():
    jaxpr = round_jaxpr(held_form)
    [barrier] = [e for e in jaxpr.eqns if "barrier" in e.primitive.name]
    [scan] = [e for e in jaxpr.eqns if "scan" in e.primitive.name]
    sums = [e for e in jaxpr.eqns if e.primitive.name == "psum"]
    for made in (scan, *sums):
        users = [e for e in jaxpr.eqns if any(x in e.invars for x in made.outvars)]
        assert users == [barrier]


def test_the_held_form_sends_the_models_themselves():
    jaxpr = round_jaxpr(held_form)
    sent = [x for e in jaxpr.eqns if e.primitive.name == "psum" for x in e.invars]
    assert len(sent) == len(PARAMS)
    assert set(sent) < set(jaxpr.invars)


@pytest.mark.parametrize("form", [held_form, flat_form()], ids=["held", "flat"])
def test_the_mean_and_the_local_steps_do_not_wait_for_each_other(form):
    jaxpr = round_jaxpr(form)
    assert "scan" not in helpers.upstream_of("psum", jaxpr)
    assert "psum" not in helpers.upstream_of("scan", jaxpr)


def test_a_fragment_and_the_step_beside_it_do_not_wait_for_each_other():
    [scan] = [
        e for e in round_jaxpr(FORMS["fragments"]).eqns if "scan" in str(e.primitive)
    ]
    step = scan.params["jaxpr"].jaxpr
    assert "sin" not in helpers.upstream_of("psum", step)
    assert "cos" not in helpers.upstream_of("psum", step)
    assert "psum" not in helpers.upstream_of("cos", step)


def test_fragments_send_what_the_whole_mean_sends_but_for_filling():
    state = init_state(PARAMS, OPTIMIZER, STRATEGIES[0], num_workers=4)

    def sent(form):
        worker_round = make_worker_round(loss, OPTIMIZER, STRATEGIES[0], form=form)
        return payload_bytes(worker_round, state, jnp.ones((4, TAU)), num_workers=4)

    assert sent(tree_form) == sent(held_form) == 8 * 8 + 4 * 10
    assert sent(flat_form()) == 8 * 8 + 4 * 10
    assert sent(FORMS["fragments"]) == 8 * 9 + 4 * 12


@pytest.mark.parametrize("num_fragments", [1, 2, 3, 100])
@pytest.mark.parametrize("shape", [(), (1,), (7,), (2, 3, 4), (2, 1025)])
def test_joining_undoes_cutting(shape, num_fragments):
    tree = {"x": jax.random.normal(jax.random.key(0), shape), "y": jnp.ones(3, "f4")}
    fragments = cut_fragments(tree, num_fragments)
    assert {x.shape[0] for x in fragments.values()} == {num_fragments}
    jax.tree.map(
        np.testing.assert_array_equal, join_fragments(fragments, like=tree), tree
    )


@pytest.mark.parametrize(
    ("size", "shape"), [(6, (3, 1, 2)), (3072, (3, 1, 1024)), (3073, (3, 16, 128))]
)
def test_large_fragments_are_whole_tiles_and_small_ones_hold_no_filling(size, shape):
    assert cut_fragments(jnp.zeros(size), 3)["float64"].shape == shape


def test_a_fragment_is_put_away_only_when_its_step_has_ended():
    def send(fragments, k, x):
        return send_fragment(exact(), (fragments, ()), k, until=jnp.cos(x))

    arguments = jnp.zeros((3, 1, 4)), jnp.array(1), jnp.zeros(2)
    traced = jax.make_jaxpr(send, axis_env=[(WORKERS, 4)])(*arguments)
    barrier = helpers.upstream_of("optimization_barrier", traced.jaxpr)
    assert {"cos", "psum"} <= barrier
    assert "cos" not in helpers.upstream_of("psum", traced.jaxpr)


def test_a_streamed_round_trains_as_one_that_is_not(mesh):
    strategy = STRATEGIES[0]
    finals = []
    for stream in (False, True):
        run = make_round(
            loss, OPTIMIZER, strategy, sync_period=TAU, mesh=mesh, stream=stream
        )
        state = init_state(PARAMS, OPTIMIZER, strategy, mesh=mesh, num_workers=4)
        for r in range(3):
            state, _ = run(state, jax.random.normal(jax.random.key(r), (4, TAU)))
        finals.append(state)
        lowered = run.lower(state, jnp.ones((4, TAU)))
        assert ("_pad" in lowered.as_text()) == stream
    jax.tree.map(np.testing.assert_array_equal, finals[0].params, finals[1].params)


@pytest.mark.parametrize("strategy", [local_sgd(), sync_sgd()], ids=lambda x: x.name)
def test_streaming_what_is_not_there_yet_is_refused(strategy):
    with pytest.raises(ValueError, match=f"stream must be False under {strategy.name}"):
        make_round(loss, OPTIMIZER, strategy, sync_period=TAU, stream=True)
