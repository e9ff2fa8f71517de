"""Reductions: what they send, and that every path hands them their state."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from olsgd_jax import (
    REDUCTIONS,
    WORKERS,
    cocod_sgd,
    delayed_diloco,
    distribute,
    exact,
    init_state,
    local_sgd,
    make_round,
    overlap_jit,
    overlap_local_sgd,
    payload_bytes,
    plain_loss,
    send_nothing,
    sync_sgd,
    to_workers,
    worker_mean,
    worker_mesh,
)
from olsgd_jax.drivers.forms import buckets, fragments
from olsgd_jax.drivers.forms.base import flat_form, fragments_form, held_form
from olsgd_jax.drivers.forms.buckets import buckets_form
from olsgd_jax.drivers.forms.exchange import exchange_form
from olsgd_jax.drivers.platforms import Platform
from olsgd_jax.reductions.base import Reduction
from olsgd_jax.round.worker_round import tree_form

BUILDERS = make_round, distribute, init_state
M, TAU, SIZE, RATE, GRID, ROUNDS = 3, 4, 22, 0.3, 0.25, 3
CENTRES = np.random.default_rng(0).normal(size=(M, SIZE))
OPTIMIZER = optax.sgd(RATE)
STRATEGIES = {
    "sync_sgd": sync_sgd(),
    "local_sgd": local_sgd(),
    "cocod_sgd": cocod_sgd(),
    "overlap_local_sgd": overlap_local_sgd(pullback=0.6),
    "delayed_diloco": delayed_diloco(optax.sgd(0.5)),
}
# Bytes of a message of float32, and of 128 numbers with their scale.
LARGE = M * 32 * 128
PAYLOADS = {
    "exact": 4 * LARGE,
    "send_nothing": 0,
    "bfloat16": 2 * LARGE,
    "int8": (128 + 4) * LARGE // 128,
    "int4": (64 + 4) * LARGE // 128,
    "int2": (32 + 4) * LARGE // 128,
    "top_k": 8 * (1 + 2) * LARGE // 256,
    "random_mask": 4 * LARGE // 32,
    "low_rank": 4 * 4 * (LARGE // 64 + 64),
}
FORMS = {
    "tree": tree_form,
    "held": held_form,
    "flat": flat_form(),
    "buckets": buckets_form(),
    "fragments": fragments_form(),
    "exchange": exchange_form(flat_form()),
}


def coarse():
    """Sends about half, in multiples of GRID; the next message has the rest as well."""

    def reduce(message, state, axis_name=WORKERS, hold=None):
        (error,) = state
        whole = optax.tree.add(message, error)
        sent = jax.tree.map(lambda x: GRID * jnp.round(x / 2 / GRID), whole)
        mean = worker_mean(sent, axis_name, hold)
        return mean, (optax.tree.sub(whole, sent),)

    def init(message):
        return (optax.tree.zeros_like(message),)

    return Reduction("coarse", init, reduce, payload=exact().payload)


class CoarseLoop:
    """The same for rows of workers, in NumPy."""

    def __init__(self):
        self.error = np.zeros((M, SIZE))

    def __call__(self, rows, present):
        whole = np.where(present[:, None], rows + self.error, 0)
        sent = GRID * np.round(whole / 2 / GRID)
        self.error = np.where(present[:, None], whole - sent, self.error)
        return sent.sum(axis=0) / present.sum()


def loop(name, presence):
    """Models of all workers after every round; worker i minimises ½ (x − cᵢ)²."""
    x, z, progress = np.zeros((M, SIZE)), np.zeros(SIZE), np.zeros((M, SIZE))
    coarse, reference = CoarseLoop(), np.zeros(SIZE)

    def mean(rows, present):
        """Only models are sent as differences from their last mean."""
        nonlocal reference
        if name in ("sync_sgd", "delayed_diloco"):
            return coarse(rows, present)
        reference = reference + coarse(rows - reference, present)
        return reference

    for present in presence:
        here = present[:, None]
        y = x
        for _ in range(TAU):
            g = y - CENTRES
            if name == "sync_sgd":
                g = mean(g, present)
            y = y - RATE * g
        match name:
            case "sync_sgd":
                x = y
            case "local_sgd":
                x = np.where(here, mean(y, present), x)
            case "cocod_sgd":
                x = np.where(here, mean(x, present) + (y - x), x)
            case "overlap_local_sgd":
                z = mean(x, present)
                x = np.where(here, y - 0.6 * (y - z), x)
            case "delayed_diloco":
                progress, before = np.where(here, x - y, progress), progress
                x = x - 0.5 * mean(before, present)
        yield x


@plain_loss
def loss(params, centre):
    return sum(jnp.sum((params[name] - centre[name]) ** 2) for name in params) / 2


def as_tree(rows):
    return {"a": jnp.asarray(rows[..., :3]), "b": jnp.asarray(rows[..., 3:])}


def as_rows(tree):
    return np.concatenate([tree["a"], tree["b"]], axis=-1)


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


EVERYONE = [np.full(M, True)] * ROUNDS
ALL, LEFT, RIGHT = [True] * 3, [True, False, True], [False, True, True]
SOME = [np.array(x) for x in (ALL, LEFT, RIGHT, ALL)]


def assert_follows(name, presence=EVERYONE, mesh=None, reduction=None, **options):
    strategy, reduction = STRATEGIES[name], reduction or coarse()
    run = make_round(
        loss,
        OPTIMIZER,
        strategy,
        sync_period=TAU,
        mesh=mesh,
        reduction=reduction,
        **options,
    )
    state = init_state(
        as_tree(np.zeros(SIZE)),
        OPTIMIZER,
        strategy,
        num_workers=M,
        mesh=mesh,
        reduction=reduction,
    )
    batches = as_tree(np.repeat(CENTRES[:, None], TAU, axis=1))
    for present, expected in zip(presence, loop(name, presence), strict=True):
        state, _ = run(state, batches, present=present)
        close(as_rows(state.params), expected)


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("mapping", ["vmap", "pmap", "shard_map"])
def test_rounds_hand_a_reduction_its_state(name, mapping):
    mesh = None if mapping == "vmap" else worker_mesh(M)
    assert_follows(name, mesh=mesh, mapping=mapping)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_cuts_the_state_as_it_cuts_the_message(form, monkeypatch):
    monkeypatch.setattr(buckets, "LEAST_BYTES", 56)  # several, that cut the arrays
    platform = Platform(FORMS[form], {})
    assert_follows("overlap_local_sgd", mesh=worker_mesh(M), platform=platform)


@pytest.mark.parametrize("options", [{"driver": "host"}, {"stream": True}], ids=str)
@pytest.mark.parametrize("presence", [EVERYONE, SOME], ids=["all", "some"])
def test_so_do_the_host_driver_and_streamed_rounds(options, presence, monkeypatch):
    monkeypatch.setattr(buckets, "LEAST_BYTES", 56)
    assert_follows("cocod_sgd", presence, worker_mesh(M), **options)


@pytest.mark.parametrize("name", STRATEGIES)
def test_an_absent_worker_keeps_what_it_did_not_send(name):
    assert_follows(name, SOME)


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("platform", ["cpu", "tpu", None])
def test_the_optax_face_hands_a_reduction_its_state(name, platform, monkeypatch):
    # Without exchanges, TPUs send as all others do.
    monkeypatch.setattr(fragments, "platform_here", lambda: platform)
    mesh = worker_mesh(M)
    tx = distribute(OPTIMIZER, STRATEGIES[name], TAU, reduction=coarse())

    def train_step(state, centre):
        params, opt_state = state
        grads = jax.grad(lambda x: loss(x, {}, centre, jax.random.key(0))[0])(params)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state

    params = as_tree(np.zeros(SIZE))
    state = to_workers((params, tx.init(params)), M, mesh)
    step = overlap_jit(train_step, mesh)
    for expected in loop(name, EVERYONE):
        for _ in range(TAU):
            state = step(state, as_tree(CENTRES))
        close(as_rows(state[0]), expected)


@pytest.mark.parametrize("name", REDUCTIONS)
def test_the_payload_is_what_the_program_sends(name):
    reduction = REDUCTIONS[name]()
    one = {"w": jnp.zeros((LARGE // 64, 64), jnp.float32)}

    def worker(message):
        return reduction.reduce(reduction.part.take(message), reduction.init(message))

    sent = payload_bytes(worker, to_workers(one, M), num_workers=M)
    assert sent == reduction.payload(one)
    assert sent == PAYLOADS[name]


@pytest.mark.parametrize("name", REDUCTIONS)
def test_so_is_that_of_the_steps_of_a_round(name):
    tx = distribute(OPTIMIZER, cocod_sgd(), TAU, reduction=REDUCTIONS[name]())
    one = {"w": jnp.zeros((LARGE // 64, 64), jnp.float32)}

    def train_step(params, opt_state):
        updates, opt_state = tx.update(params, opt_state, params)
        return optax.apply_updates(params, updates), opt_state

    state = to_workers((one, tx.init(one)), M)
    sent = TAU * payload_bytes(train_step, *state, num_workers=M)
    # Scales fill whole rows, and the two means of low rank are sent in equal parts.
    assert PAYLOADS[name] <= sent <= 1.5 * PAYLOADS[name]


def test_a_reduction_that_was_not_built_is_refused():
    # Tests check types, which would say so first.
    make_round, distribute, init_state = map(inspect.unwrap, BUILDERS)
    arguments = loss, OPTIMIZER, local_sgd()
    message = r"got the function exact; call it, as in exact\(\)"
    with pytest.raises(TypeError, match=message):
        make_round(*arguments, sync_period=1, reduction=exact)
    with pytest.raises(TypeError, match=message):
        distribute(OPTIMIZER, local_sgd(), 1, reduction=exact)
    with pytest.raises(TypeError, match=message):
        init_state(jnp.zeros(1), *arguments[1:], num_workers=1, reduction=exact)


def test_a_state_of_another_reduction_is_refused():
    run = make_round(
        loss, OPTIMIZER, local_sgd(), sync_period=TAU, reduction=send_nothing()
    )
    state = init_state(
        as_tree(np.zeros(SIZE)),
        OPTIMIZER,
        local_sgd(),
        num_workers=M,
        reduction=coarse(),
    )
    batches = as_tree(np.repeat(CENTRES[:, None], TAU, axis=1))
    with pytest.raises(ValueError, match="pass the reduction and model_state_policy"):
        run(state, batches)
