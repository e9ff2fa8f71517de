"""Compressed means: their NumPy twins, and what holds for all of them."""

import itertools
import re
from functools import partial

import chex
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import optax
import pytest

from olsgd_jax import (
    WORKERS,
    bfloat16,
    distribute,
    exact,
    init_state,
    int2,
    int4,
    int8,
    make_round,
    on_workers,
    overlap_jit,
    plain_loss,
    to_workers,
    top_k,
    worker_mesh,
)
from olsgd_jax.drivers.forms import buckets, fragments
from olsgd_jax.drivers.forms.base import flat_form, fragments_form, held_form
from olsgd_jax.drivers.forms.buckets import buckets_form
from olsgd_jax.drivers.forms.exchange import exchange_form
from olsgd_jax.drivers.forms.fragments import join_fragments
from olsgd_jax.drivers.platforms import Platform
from olsgd_jax.overlap import overlap_report
from olsgd_jax.reductions import REDUCTIONS as BUILT
from olsgd_jax.reductions import SENDING
from olsgd_jax.reductions.base import Draws, of_message
from olsgd_jax.round.worker_round import tree_form
from tests import test_reductions
from tests.test_reductions import (
    CENTRES,
    EVERYONE,
    OPTIMIZER,
    RATE,
    SIZE,
    SOME,
    STRATEGIES,
    TAU,
    M,
    as_rows,
    as_tree,
    close,
    loss,
)

REDUCTIONS = {
    "bfloat16": bfloat16,
    "int8": int8,
    "int4": int4,
    "int2": int2,
    "top_k": partial(top_k, 1 / 256),
}
STOCHASTIC = {
    x: partial(REDUCTIONS[x], stochastic=True) for x in ("int8", "int4", "int2")
}
ROUNDINGS = REDUCTIONS | {f"{x}, stochastic": build for x, build in STOCHASTIC.items()}


def rounded(name, x, drawn):
    """What arrives of a block."""
    name, _, is_stochastic = name.partition(", ")
    if name == "bfloat16":
        return x.astype(ml_dtypes.bfloat16).astype(x.dtype)
    if name == "top_k":
        largest = np.arange(len(x)) == np.abs(x).argmax()
        return np.where(largest, rounded("bfloat16", x, drawn), 0)
    top = {"int8": 127, "int4": 7, "int2": 1.5}[name]
    scale = np.float32(np.abs(x).max() / top).astype(x.dtype)
    q = x / (scale or 1) + top
    q = np.floor(q + drawn[: len(x)]) if is_stochastic else np.round(q)
    return (np.clip(q, 0, 2 * top) - top) * scale


def drawn_for(number):
    """What every worker draws for a message, for the numbers of any block."""
    key = jax.random.fold_in(jax.random.key(0), number)
    keys = [jax.random.fold_in(key, worker) for worker in range(M)]
    bits = np.stack([jax.random.bits(x, (FILLED,), jnp.uint16) for x in keys])
    return (bits + 0.5) / 2**16


# Two bits have no zero, so what fills up a shard counts in its scale.
FILLED = SIZE + M - 1


def cut(*bounds):
    """Which worker adds up which numbers, if parts are reduced one by one."""
    shards = []
    for first, last in itertools.pairwise(bounds):
        size = -(-(last - first) // M)
        numbers = [*range(first, last), *range(SIZE, FILLED)]
        shards += [(j, numbers[j * size : (j + 1) * size]) for j in range(M)]
    return shards


WHOLE = cut(0, SIZE)
BY_FRAGMENT = cut(0, 6, 12, 18, SIZE)  # τ = 4 of them
BY_BUCKET = cut(0, 7, 14, SIZE)
IN_TWO_STEPS = cut(0, 12, SIZE)  # two fragments of three shards of four
# Two fragments of six, in shards of whole tiles of eight.
BY_PAIR = [(0, range(8)), (1, range(8, 12)), (0, range(12, 20)), (1, range(20, SIZE))]
FORMS = {
    "tree": (tree_form, WHOLE),
    "held": (held_form, WHOLE),
    "flat": (flat_form(), WHOLE),
    "buckets": (buckets_form(), BY_BUCKET),
    "fragments": (fragments_form(), BY_FRAGMENT),
    "exchange": (exchange_form(flat_form()), IN_TWO_STEPS),
}


class TwinLoop:
    """The mean of rows of workers in two exchanges, with error feedback."""

    def __init__(self, name, shards, error_feedback=1.0):
        self.name, self.shards, self.feedback = name, shards, error_feedback
        self.error, self.number = np.zeros((M, SIZE)), 0

    def __call__(self, rows, present):
        whole = np.zeros((M, FILLED))
        whole[:, :SIZE] = np.where(present[:, None], rows + self.error, 0)
        lost, mean = np.zeros((M, FILLED)), np.zeros(FILLED)
        drawn, self.number = drawn_for(self.number), self.number + 1
        for owner, numbers in self.shards:
            own = whole[:, numbers]
            sent = np.stack(
                [rounded(self.name, *x) for x in zip(own, drawn, strict=True)]
            )
            lost[:, numbers] = own - sent
            sent[owner] = own[owner]
            total = sent.sum(axis=0) / M
            mean[numbers] = rounded(self.name, total, drawn[owner])
            lost[owner, numbers] = M * (total - mean[numbers])
        lost = self.feedback * lost[:, :SIZE]
        self.error = np.where(present[:, None], lost, self.error + lost)
        return mean[:SIZE] * M / present.sum()


@pytest.fixture
def follow(monkeypatch):
    """Compares rounds with the loops of test_reductions, with a mean of their own."""

    def assert_follows(twin, strategy, presence=EVERYONE, mesh=None, **options):
        monkeypatch.setattr(test_reductions, "CoarseLoop", lambda: twin)
        reduction = ROUNDINGS[twin.name](error_feedback=twin.feedback)
        test_reductions.assert_follows(strategy, presence, mesh, reduction, **options)

    return assert_follows


@pytest.mark.parametrize("name", ROUNDINGS)
@pytest.mark.parametrize(
    ("strategy", "mapping"),
    [
        ("sync_sgd", "vmap"),
        ("local_sgd", "pmap"),
        ("cocod_sgd", "shard_map"),
        ("overlap_local_sgd", "vmap"),
        ("delayed_diloco", "shard_map"),
    ],
)
def test_rounds_follow_the_twin(name, strategy, mapping, follow):
    mesh = None if mapping == "vmap" else worker_mesh(M)
    follow(TwinLoop(name, WHOLE), strategy, mesh=mesh, mapping=mapping)


@pytest.mark.parametrize("name", ROUNDINGS)
@pytest.mark.parametrize("form", FORMS)
def test_every_form_follows_the_twin(name, form, follow, monkeypatch):
    monkeypatch.setattr(buckets, "LEAST_BYTES", 56)  # several, that cut the arrays
    code, shards = FORMS[form]
    twin, platform = TwinLoop(name, shards), Platform(code, {})
    follow(twin, "cocod_sgd", mesh=worker_mesh(M), platform=platform)


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("error_feedback", [0.5, 0.0])
@pytest.mark.parametrize("form", ["tree", "exchange"])
def test_so_do_rounds_that_feed_back_less_of_the_error(
    name, error_feedback, form, follow
):
    code, shards = FORMS[form]
    twin, platform = TwinLoop(name, shards, error_feedback), Platform(code, {})
    follow(twin, "overlap_local_sgd", mesh=worker_mesh(M), platform=platform)


@pytest.mark.parametrize(
    ("name", "strategy", "way"),
    [
        ("int4", "sync_sgd", "whole"),
        *((name, "local_sgd", "whole") for name in ROUNDINGS),
        ("int4", "delayed_diloco", "whole"),
        ("int4, stochastic", "overlap_local_sgd", "host"),
        ("int4", "overlap_local_sgd", "streamed"),
    ],
)
def test_so_do_rounds_that_workers_miss(name, strategy, way, follow, monkeypatch):
    monkeypatch.setattr(buckets, "LEAST_BYTES", 56)
    options, shards = {
        "whole": ({}, WHOLE),
        "host": ({"driver": "host"}, BY_BUCKET),
        "streamed": ({"stream": True}, BY_FRAGMENT),
    }[way]
    follow(TwinLoop(name, shards), strategy, SOME, worker_mesh(M), **options)


@pytest.mark.parametrize(
    ("name", "strategy", "platform"),
    [
        ("int8", "sync_sgd", "cpu"),
        ("int8, stochastic", "sync_sgd", "cpu"),
        ("int4", "local_sgd", "gpu"),
        *((name, "cocod_sgd", "cpu") for name in ROUNDINGS),
        # What two bits make of the numbers that fill up a pair waits with its errors.
        *((x, "overlap_local_sgd", "tpu") for x in ROUNDINGS if "int2" not in x),
        ("int4", "cocod_sgd", "gpu"),
        ("int4", "delayed_diloco", "cpu"),
    ],
)
def test_the_optax_face_follows_the_twin(name, strategy, platform, monkeypatch):
    # GPUs and TPUs send a pair of fragments over two steps.
    delayed = BY_FRAGMENT if platform == "cpu" else BY_PAIR
    is_delayed = STRATEGIES[strategy].mean_of == "start"
    twin = TwinLoop(name, delayed if is_delayed else WHOLE)
    monkeypatch.setattr(test_reductions, "CoarseLoop", lambda: twin)
    monkeypatch.setattr(fragments, "platform_here", lambda: platform)
    tx = distribute(OPTIMIZER, STRATEGIES[strategy], TAU, reduction=ROUNDINGS[name]())
    rounds = rounds_of(tx, TAU, loss)
    for model in test_reductions.loop(strategy, EVERYONE):
        params, _ = next(rounds)
        close(as_rows(params), model)


def rounds_of(tx, tau, loss):
    """Yields params and state of the optax face after every round."""
    mesh = worker_mesh(M)

    def train_step(state, centre):
        params, opt_state = state
        grads = jax.grad(lambda x: loss(x, {}, centre, jax.random.key(0))[0])(params)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state

    params = as_tree(np.zeros(SIZE))
    state = to_workers((params, tx.init(params)), M, mesh)
    step = overlap_jit(train_step, mesh)
    while True:
        for _ in range(tau):
            state = step(state, as_tree(CENTRES))
        yield state


@plain_loss
def slope(params, centre):
    """Has the same gradient everywhere, so nothing that a mean loses changes it."""
    return sum(jnp.sum(params[name] * centre[name]) for name in params)


def assert_all_is_there(params, unsent, num_steps):
    """Checks that models and what waits to be sent are what SGD makes of `slope`."""
    assert np.abs(unsent).max() > 1e-3
    found = (as_rows(params) + unsent).mean(axis=0)
    expected = -RATE * num_steps * CENTRES.mean(axis=0)
    close(found, expected)


@pytest.mark.parametrize("tau", [1, 2, 3, 5])
@pytest.mark.parametrize("form", [*FORMS, "host"])
def test_rounds_of_any_length_lose_nothing_for_good(tau, form, monkeypatch):
    monkeypatch.setattr(buckets, "LEAST_BYTES", 56)
    mesh, strategy, reduction = worker_mesh(M), STRATEGIES["cocod_sgd"], top_k(1 / 256)
    how = {"driver": "host"}
    if form != "host":
        how = {"platform": Platform(FORMS[form][0], {})}
    options = {"mesh": mesh, "reduction": reduction}
    run = make_round(slope, OPTIMIZER, strategy, sync_period=tau, **options, **how)
    state = init_state(as_tree(np.zeros(SIZE)), OPTIMIZER, strategy, **options)
    batches = as_tree(np.repeat(CENTRES[:, None], tau, axis=1))
    for number in range(1, 4):
        state, _ = run(state, batches)
        if number > 1:  # the first starts are all the same
            [(unsent, _)] = state.reduction_state.models.own
            assert_all_is_there(state.params, as_rows(unsent), number * tau)


@pytest.mark.parametrize("name", ["int2", "top_k"])
@pytest.mark.parametrize("tau", [1, 2, 3, 5])
@pytest.mark.parametrize("platform", ["cpu", "tpu"])
def test_neither_do_those_of_the_optax_face(name, tau, platform, monkeypatch):
    monkeypatch.setattr(fragments, "platform_here", lambda: platform)
    reduction = ROUNDINGS[name]()
    tx = distribute(OPTIMIZER, STRATEGIES["cocod_sgd"], tau, reduction=reduction)
    rounds, like = rounds_of(tx, tau, slope), as_tree(np.zeros(SIZE))
    for number in range(1, 4):
        params, state = next(rounds)
        if number > 1:
            [unsent] = state.reduction_state.own
            unsent = jax.vmap(lambda x: join_fragments(x, like))(unsent)
            assert_all_is_there(params, as_rows(unsent), number * tau)


@pytest.mark.parametrize("shape", [{"data": 2}, {"fsdp": 2}], ids=str)
@pytest.mark.parametrize("form", [flat_form, lambda x: exchange_form(flat_form(x), x)])
def test_workers_of_several_devices_settle_at_the_optimum(shape, form):
    mesh, strategy = worker_mesh(2, **shape), STRATEGIES["cocod_sgd"]
    run = make_round(
        loss,
        OPTIMIZER,
        strategy,
        sync_period=TAU,
        mesh=mesh,
        reduction=int4(),
        platform=Platform(form(mesh), {}),
    )
    centres = np.random.default_rng(2).normal(size=(2, 12))

    def tree(rows):
        return {"a": jnp.asarray(rows[..., :4]), "b": jnp.asarray(rows[..., 4:])}

    state = init_state(
        tree(np.zeros(12)), OPTIMIZER, strategy, mesh=mesh, reduction=int4()
    )
    # All examples of a worker's batch are the same.
    batches = tree(np.tile(centres[:, None], (1, TAU, 1)))
    for _ in range(60):
        state, _ = run(state, batches)
    consensus = as_rows(state.params).mean(axis=0)
    # The workers stay apart by about 1, of which four bits lose up to 1/14.
    np.testing.assert_allclose(consensus, centres.mean(axis=0), atol=0.05)


def test_the_loss_that_an_optimizer_gets_is_not_rounded():
    def update(updates, state, params=None, *, value, **extra):
        return updates, value

    noted = optax.GradientTransformationExtraArgs(lambda x: jnp.zeros(()), update)
    strategy, reduction = STRATEGIES["sync_sgd"], bfloat16()
    run = make_round(loss, noted, strategy, sync_period=1, reduction=reduction)
    params = as_tree(np.zeros(SIZE))
    state = init_state(params, noted, strategy, num_workers=M, reduction=reduction)
    state, record = run(state, as_tree(CENTRES[:, None]))
    expected = np.full(M, record.loss.mean())
    np.testing.assert_allclose(state.opt_state, expected, rtol=1e-7)  # float32


MESSAGES = jnp.asarray(np.random.default_rng(1).normal(size=(4, 1000)))


def reduced(reduction, messages, mesh, num_means=1):
    """Means and states of reducing the same messages again and again."""

    def worker(message):
        state, means = reduction.init(message), []
        for number in range(num_means):
            mean, state = of_message(reduction, number).reduce(message, state)
            means.append(mean)
        return jnp.stack(means), state

    if mesh is None:
        return jax.jit(jax.vmap(worker, axis_name=WORKERS))(messages)
    return jax.jit(on_workers(worker, mesh))(messages)


BUILDERS = [pytest.param(build, id=name) for name, build in ROUNDINGS.items()]


@pytest.mark.parametrize("build", BUILDERS)
def test_nothing_is_lost_for_good(build, mesh):
    means, (error,) = reduced(build(), MESSAGES, mesh, num_means=5)
    arrived = means[0].sum(axis=0) + error.mean(axis=0)
    np.testing.assert_allclose(arrived, 5 * MESSAGES.mean(axis=0), atol=1e-12)


@pytest.mark.parametrize("build", BUILDERS)
@pytest.mark.parametrize("error_feedback", [True, False])
def test_all_workers_get_the_same_bits(build, error_feedback, mesh):
    means, _ = reduced(build(error_feedback), MESSAGES, mesh, num_means=2)
    np.testing.assert_array_equal(means, np.broadcast_to(means[:1], means.shape))


@pytest.mark.parametrize("build", BUILDERS)
def test_so_do_workers_that_share_a_slot(build):
    together, _ = reduced(build(), MESSAGES, worker_mesh(2), num_means=2)
    np.testing.assert_array_equal(
        together, np.broadcast_to(together[:1], together.shape)
    )
    apart, _ = reduced(build(), MESSAGES, worker_mesh(4), num_means=2)
    np.testing.assert_allclose(together, apart, atol=1e-12)


@pytest.mark.parametrize("name", STOCHASTIC)
def test_stochastic_rounding_has_no_bias(name):
    build, num_messages = STOCHASTIC[name], 4000
    codec_of = build(error_feedback=0).draw
    numbers = np.random.default_rng(4).uniform(-1, 1, size=(2, 128))
    shards = jnp.asarray(np.where(np.arange(128) == 0, 1.0, numbers))
    keys = jax.random.split(jax.random.key(0), num_messages)

    def arrive(key):
        codec = codec_of(Draws(shared=key, own=key)).codec
        return codec.decode(codec.encode(shards, *codec.draws), shards)

    arrived = np.asarray(jax.vmap(arrive)(keys))
    step = {"int8": 1 / 127, "int4": 1 / 7, "int2": 2 / 3}[name]
    assert np.abs(arrived - shards).max() < step
    # A value that is up or down has a standard deviation of at most half a step. All
    # 256 numbers are within five of those of the mean.
    margin = 5 * step / 2 / num_messages**0.5
    np.testing.assert_allclose(arrived.mean(axis=0), shards, atol=margin)
    # Nearest values are further off.
    codec = REDUCTIONS[name]().codec
    nearest = codec.decode(codec.encode(shards), shards)
    assert np.abs(nearest - shards).max() > 5 * margin


def test_numbers_are_rounded_up_as_often_as_they_are_near():
    # One draw of 2¹⁶ rounds up a number that is k / 2¹⁶ above a whole one, k do.
    key, top = jax.random.key(0), 127
    bits = np.asarray(jax.random.bits(key, (1, 128), jnp.uint16), np.float64)
    codec = int8(error_feedback=0, stochastic=True).draw(Draws(key, key)).codec
    for share, rounds_up in ((0.25, True), (0.75, False)):
        numbers = jnp.asarray(1 - (bits + share) / 2**16).at[0, 0].set(top)  # scale 1
        arrived = codec.decode(codec.encode(numbers, *codec.draws), numbers)
        np.testing.assert_array_equal(arrived[0, 1:], float(rounds_up))


def test_workers_round_independently_and_anew():
    messages = jnp.tile(MESSAGES[:1], (4, 1))
    reduction = int2(error_feedback=0, stochastic=True)

    def sent(message, number):
        codec = of_message(reduction, number).codec
        code = codec.encode(message[None], *codec.draws)
        return codec.decode(code, message[None])[0]

    run = jax.vmap(sent, in_axes=(0, None), axis_name=WORKERS)
    first, second = (np.asarray(run(messages, number)) for number in (0, 1))
    for other in (first[1], second[0]):
        # As often up as down: about half of the numbers differ, where they are not
        # next to a value that can be sent.
        assert 0.2 < (first[0] != other).mean() < 0.5


def test_workers_of_several_devices_draw_too():
    strategy, means = STRATEGIES["cocod_sgd"], []
    params = {"a": jnp.zeros((8, 4)), "b": jnp.zeros(6)}
    draw = np.random.default_rng(5).normal
    centres = jax.tree.map(lambda x: jnp.asarray(draw(size=(2, *x.shape))), params)
    # All examples of a worker's batch are the same.
    batches = jax.tree.map(
        lambda x: jnp.broadcast_to(x[:, None, None], (2, TAU, 2, *x.shape[1:])), centres
    )
    for stochastic in (False, True):
        mesh, reduction = worker_mesh(2, fsdp=2), int4(stochastic=stochastic)
        run = make_round(
            loss,
            OPTIMIZER,
            strategy,
            sync_period=TAU,
            mesh=mesh,
            reduction=reduction,
            platform=Platform(exchange_form(flat_form(mesh), mesh), {}),
        )
        state = init_state(params, OPTIMIZER, strategy, mesh=mesh, reduction=reduction)
        for _ in range(30):
            state, _ = run(state, batches)
        means.append(jax.tree.map(lambda x: x.mean(axis=0), state.params))
    nearest, drawn = means
    expected = jax.tree.map(lambda x: x.mean(axis=0), centres)
    # The workers stay apart by about 1, of which four bits lose up to 1/7.
    chex.assert_trees_all_close(nearest, expected, atol=0.15)
    chex.assert_trees_all_close(drawn, expected, atol=0.15)
    assert (drawn["a"] != nearest["a"]).any()


def test_a_run_draws_from_the_number_of_its_rounds():
    strategy, reduction = STRATEGIES["cocod_sgd"], int2(stochastic=True)
    options = {"sync_period": TAU, "reduction": reduction}
    run = make_round(loss, OPTIMIZER, strategy, **options)
    batches = as_tree(np.repeat(CENTRES[:, None], TAU, axis=1))

    def after(number):
        state = init_state(
            as_tree(CENTRES[0]), OPTIMIZER, strategy, num_workers=M, reduction=reduction
        )
        state = state._replace(
            params=jax.tree.map(jnp.add, state.params, as_tree(CENTRES)),
            round=jnp.full(M, number, jnp.int32),
        )
        return as_rows(run(state, batches)[0].params)

    np.testing.assert_array_equal(after(7), after(7))
    assert (after(7) != after(8)).any()


@pytest.mark.parametrize("name", REDUCTIONS)
def test_what_fits_arrives_as_it_was(name, mesh):
    if name == "top_k":
        numbers = np.where(np.arange(1000) % 250 == 7, 3.5, 0)
    else:
        top = {"bfloat16": 100, "int8": 127, "int4": 7, "int2": 1.5}[name]
        numbers = np.tile([top, -top, top - 1, 1 - top], 250) / 4
    messages = jnp.asarray(np.tile(numbers, (4, 1)))
    means, (error,) = reduced(REDUCTIONS[name](), messages, mesh)
    np.testing.assert_array_equal(means[:, 0], messages)
    assert not error.any()


@pytest.mark.parametrize("name", SENDING)
def test_the_compiled_program_sends_no_more_than_the_payload(name):
    # Whose default fraction of top_k fills whole rows.
    reduction, mesh = BUILT[name](), worker_mesh(4)
    one = jnp.zeros((4 * 32, 128), jnp.float32)

    def worker(message):
        return reduction.reduce(reduction.part.take(message), reduction.init(message))

    compiled = jax.jit(on_workers(worker, mesh)).lower(to_workers(one, 4, mesh))
    sent = overlap_report(compiled.compile()).mean_bytes
    assert sent == reduction.payload(one)


@pytest.mark.parametrize("name", ["int8", "int4", "int2"])
def test_what_is_lost_is_found_without_coding_again(name):
    reduction, mesh = REDUCTIONS[name](), worker_mesh(4)
    one = to_workers(jnp.zeros(4 * 32 * 128, jnp.float32), 4, mesh)

    def worker(message):
        return reduction.reduce(message, reduction.init(message))

    text = jax.jit(on_workers(worker, mesh)).lower(one).compile().as_text()
    rounded = re.findall(r"= f32\[(\d+),32,128\]\S* round-nearest-even\(", text)
    assert rounded.count("1") == 1  # this worker's shard of the mean
    assert rounded.count("4") <= 5  # all shards, and the one for each worker


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_number_that_is_not_finite_does_not_arrive_as_one_that_is(name, bad, mesh):
    means, _ = reduced(REDUCTIONS[name](), MESSAGES.at[1, 17].set(bad), mesh)
    assert not np.isfinite(means[:, 0, 17]).any()
    assert np.isfinite(means[:, 0, 500:]).all()


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.float16])
def test_sums_are_in_float32(dtype):
    messages = MESSAGES.astype(dtype)
    means, _ = reduced(int8(), messages, None)
    assert means.dtype == dtype
    exact = np.asarray(messages, np.float64).mean(axis=0)
    # Two roundings to 255 values, and one to the dtype.
    margin = 2 * np.abs(MESSAGES).max() / 254 + 3 * float(jnp.finfo(dtype).eps)
    assert np.abs(np.asarray(means[0, 0], np.float64) - exact).max() < margin


def test_the_largest_numbers_of_every_block_arrive():
    shards = np.random.default_rng(3).normal(size=(2, 1000)).astype(np.float32)
    expected = np.zeros((2, 1024), np.float32)
    for shard, found in zip(shards, expected, strict=True):
        for first in range(0, 1000, 256):
            block = shard[first : first + 256]
            largest = np.argsort(-np.abs(block), kind="stable")[:8]
            found[first + largest] = block[largest].astype(ml_dtypes.bfloat16)
    codec = top_k().codec
    code = codec.encode(jnp.asarray(shards))
    assert code.nbytes == 2 * top_k().payload(shards[0])
    arrived = codec.decode(code, jnp.asarray(shards))
    np.testing.assert_array_equal(arrived, expected[:, :1000])


def test_a_fraction_that_no_block_has_is_refused_with_the_nearest():
    message = "fraction must be a multiple of 1/256, got 0.1; pass 26/256 = 0.101562"
    with pytest.raises(ValueError, match=message):
        top_k(fraction=0.1)


@pytest.mark.parametrize(
    ("reduction", "rate", "settles"),
    [
        (exact(), 0.7, True),
        (int4(), 0.7, True),
        (top_k(), 0.1, True),
        (top_k(), 0.7, False),
        (top_k(error_feedback=0.95), 0.7, True),
    ],
)
def test_sending_most_numbers_later_acts_like_a_delay(reduction, rate, settles):
    rng, m, size = np.random.default_rng(0), 8, 2048
    curvature = jnp.asarray(np.exp(rng.uniform(-3, 0, size)))
    centres = jnp.asarray(1 + 0.3 * rng.normal(size=(m, size)))
    quadratic = plain_loss(lambda x, c: jnp.sum(curvature * (x - c) ** 2) / 2)
    optimizer, strategy = optax.sgd(rate), STRATEGIES["local_sgd"]
    run = make_round(quadratic, optimizer, strategy, sync_period=1, reduction=reduction)
    state = init_state(
        jnp.zeros(size), optimizer, strategy, num_workers=m, reduction=reduction
    )
    for _ in range(250):
        state, _ = run(state, centres[:, None])
    distance = jnp.abs(state.params.mean(axis=0) - centres.mean(axis=0)).mean()
    assert (distance < 1) == settles
