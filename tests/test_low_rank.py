"""The mean in low rank: its NumPy twin, what it keeps, and PowerSGD, which it makes."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from olsgd_jax import (
    WORKERS,
    distribute,
    init_state,
    low_rank,
    make_round,
    make_worker_round,
    on_workers,
    overlap_jit,
    payload_bytes,
    plain_loss,
    sync_sgd,
    to_workers,
    worker_mesh,
)
from olsgd_jax.drivers.forms import buckets, fragments
from olsgd_jax.drivers.forms.base import flat_form, fragments_form, held_form
from olsgd_jax.drivers.forms.buckets import buckets_form
from olsgd_jax.drivers.forms.exchange import exchange_form
from olsgd_jax.drivers.platforms import Platform
from olsgd_jax.overlap import overlap_report
from olsgd_jax.round.participation import arrived, outgoing
from olsgd_jax.round.worker_round import tree_form
from tests import helpers, reference, test_reductions
from tests.test_reductions import EVERYONE, OPTIMIZER, SOME, STRATEGIES, M, loss

RANK, ROWS, COLUMNS = 2, *helpers.MATRIX
CENTRES = np.random.default_rng(0).normal(size=(M, helpers.SIZE))
FORMS = {
    "tree": tree_form,
    "held": held_form,
    "flat": flat_form(),
    "buckets": buckets_form(),
    "fragments": fragments_form(),
    "exchange": exchange_form(fragments_form()),
}
# One step; a part per step, and one step too many; two steps per part, and one.
TAUS = [1, 2, 3, 4, 9]


def first_q(rank=RANK):
    return np.asarray(low_rank(rank).init(jnp.zeros(helpers.MATRIX)).q[0])


class TwinLoop:
    """The mean of rows of workers: a vector, and a matrix in low rank."""

    def __init__(self, error_feedback=1.0, rank=RANK):
        self.feedback, self.q = error_feedback, first_q(rank)
        self.error = np.zeros((M, ROWS, COLUMNS))

    def __call__(self, rows, present):
        vectors, matrices = np.split(rows, [-ROWS * COLUMNS], axis=1)
        here, num_present = present[:, None, None], present.sum()
        whole = np.where(here, matrices.reshape(-1, ROWS, COLUMNS) + self.error, 0)
        low = np.zeros((ROWS, COLUMNS))
        if whole.any():  # workers that have nothing to send keep Q
            p = reference.gram_schmidt((whole @ self.q).sum(axis=0) / num_present)
            own = whole.transpose(0, 2, 1) @ p
            lost = self.feedback * (whole - p @ own.transpose(0, 2, 1))
            self.error = np.where(here, lost, self.error)
            self.q = own.sum(axis=0) / num_present
            low = p @ self.q.T
        return np.concatenate([vectors[present].mean(axis=0), low.ravel()])


@pytest.fixture
def set_tau(monkeypatch):
    """Gives the loops of test_reductions a matrix, a mean of their own, and a τ."""

    def prepare(tau=4, twin=None):
        twin = twin or TwinLoop()
        monkeypatch.setattr(test_reductions, "CoarseLoop", lambda: twin)
        monkeypatch.setattr(test_reductions, "SIZE", helpers.SIZE)
        monkeypatch.setattr(test_reductions, "CENTRES", CENTRES)
        monkeypatch.setattr(test_reductions, "TAU", tau)
        monkeypatch.setattr(test_reductions, "as_tree", helpers.as_tree)
        monkeypatch.setattr(test_reductions, "as_rows", helpers.as_flat)

    return prepare


def follow(strategy, presence=EVERYONE, mesh=None, error_feedback=1.0, **options):
    reduction = low_rank(RANK, error_feedback)
    test_reductions.assert_follows(strategy, presence, mesh, reduction, **options)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("mapping", ["vmap", "pmap", "shard_map"])
def test_rounds_follow_the_twin(strategy, mapping, set_tau):
    set_tau()
    mesh = None if mapping == "vmap" else worker_mesh(M)
    follow(strategy, mesh=mesh, mapping=mapping)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("tau", TAUS)
def test_every_form_follows_the_twin(form, tau, set_tau, monkeypatch):
    set_tau(tau)
    monkeypatch.setattr(buckets, "LEAST_BYTES", 16)  # which would be several
    platform = Platform(FORMS[form], {})
    follow("overlap_local_sgd", mesh=worker_mesh(M), platform=platform)


@pytest.mark.parametrize("options", [{"driver": "host"}, {"stream": True}], ids=str)
@pytest.mark.parametrize("presence", [EVERYONE, SOME], ids=["all", "some"])
def test_so_do_the_host_driver_and_streamed_rounds(
    options, presence, set_tau, monkeypatch
):
    set_tau()
    monkeypatch.setattr(buckets, "LEAST_BYTES", 16)
    follow("cocod_sgd", presence, worker_mesh(M), **options)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_so_do_rounds_that_workers_miss(strategy, set_tau):
    set_tau()
    follow(strategy, SOME)


@pytest.mark.parametrize("error_feedback", [0.5, 0.0])
def test_so_do_rounds_that_feed_back_less_of_the_error(error_feedback, set_tau):
    set_tau(twin=TwinLoop(error_feedback))
    follow("overlap_local_sgd", error_feedback=error_feedback)


def run_steps(strategy, tau, mesh, map_step, reduction):
    """Yields the models of all workers in the optax face, after every round."""
    tx = distribute(OPTIMIZER, STRATEGIES[strategy], tau, reduction=reduction)

    def train_step(state, centre):
        params, opt_state = state
        grads = jax.grad(lambda x: loss(x, {}, centre, jax.random.key(0))[0])(params)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state

    params = helpers.as_tree(np.zeros(helpers.SIZE))
    state = to_workers((params, tx.init(params)), M, mesh)
    step = map_step(train_step)
    while True:
        for _ in range(tau):
            state = step(state, helpers.as_tree(CENTRES))
        yield helpers.as_flat(state[0])


@pytest.mark.parametrize(
    ("strategy", "platform", "tau"),
    [
        *((name, "cpu", 4) for name in STRATEGIES),
        *itertools.product(["overlap_local_sgd"], ["tpu", None], TAUS),
    ],
)
def test_the_optax_face_follows_the_twin(strategy, platform, tau, set_tau, monkeypatch):
    set_tau(tau)
    monkeypatch.setattr(fragments, "platform_here", lambda: platform)
    mesh = worker_mesh(M)
    map_step = functools.partial(overlap_jit, mesh=mesh)
    models = run_steps(strategy, tau, mesh, map_step, low_rank(RANK))
    for expected in test_reductions.loop(strategy, EVERYONE):
        np.testing.assert_allclose(next(models), expected, atol=1e-12)


@pytest.mark.parametrize("tau", TAUS)
def test_so_does_a_users_own_shard_map(tau, set_tau):
    set_tau(tau)
    mesh, spec = worker_mesh(M), jax.sharding.PartitionSpec(WORKERS)

    def map_step(train_step):
        def one(*trees):
            trees = jax.tree.map(lambda x: x[0], trees)
            return jax.tree.map(lambda x: x[None], train_step(*trees))

        return jax.jit(jax.shard_map(one, mesh=mesh, in_specs=spec, out_specs=spec))

    models = run_steps("cocod_sgd", tau, mesh, map_step, low_rank(RANK))
    for expected in test_reductions.loop("cocod_sgd", EVERYONE):
        np.testing.assert_allclose(next(models), expected, atol=1e-12)


@pytest.mark.parametrize(
    "form", [flat_form, fragments_form, lambda x: exchange_form(flat_form(x), x)]
)
def test_workers_of_several_devices_do_as_lanes_do(form):
    m, tau, reduction, strategy = 2, 5, low_rank(1), STRATEGIES["overlap_local_sgd"]
    rng = np.random.default_rng(3)
    shapes = {"w": (6, 4), "b": (4,)}
    batches = {n: jnp.asarray(rng.normal(size=(m, tau, *x))) for n, x in shapes.items()}

    def models(mesh, **options):
        run = make_round(
            loss,
            OPTIMIZER,
            strategy,
            sync_period=tau,
            mesh=mesh,
            reduction=reduction,
            **options,
        )
        params = jax.tree.map(lambda x: x[0, 0], batches)
        state = init_state(
            params,
            OPTIMIZER,
            strategy,
            mesh=mesh,
            num_workers=m,
            reduction=reduction,
        )
        for _ in range(3):
            state, _ = run(state, batches)
        return jax.device_get(state.params)

    mesh = worker_mesh(m, fsdp=2)
    found, expected = models(mesh, platform=Platform(form(mesh), {})), models(None)
    for name, x in expected.items():
        np.testing.assert_allclose(found[name], x, atol=1e-12)


@pytest.mark.parametrize("face", ["round", "optax"])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_with_sync_sgd_it_is_powersgd_at_every_step(face, rank):
    num_steps, m, rate = 6, 3, 0.1
    problem = reference.Problem(
        m, num_steps, reference.sgd(lambda k: rate), helpers.SIZE
    )
    steps = reference.powersgd(problem, 1, rank, helpers.MATRIX, first_q(rank))
    own = follow_steps(problem, face, rate, low_rank(rank))
    for (X, _), x in zip(steps, own, strict=True):
        np.testing.assert_allclose(x, X, atol=1e-12)


def follow_steps(problem, face, rate, reduction):
    """Yields the models of synchronous SGD after every step."""
    optimizer, strategy, m = optax.sgd(rate), sync_sgd(), problem.num_workers
    task = helpers.quadratic_loss(problem.curvature)
    start = helpers.as_tree(problem.start)
    if face == "round":
        run = make_round(
            plain_loss(task), optimizer, strategy, sync_period=1, reduction=reduction
        )
        state = init_state(
            start, optimizer, strategy, num_workers=m, reduction=reduction
        )
        for k in range(problem.num_steps):
            state, _ = run(state, helpers.as_tree(problem.centres[:, k : k + 1]))
            yield helpers.as_flat(state.params)
        return
    tx = distribute(optimizer, strategy, 1, reduction=reduction)

    def train_step(state, centre):
        params, opt_state = state
        grads = jax.grad(task)(params, centre)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state

    step, state = overlap_jit(train_step), to_workers((start, tx.init(start)), m)
    for k in range(problem.num_steps):
        state = step(state, helpers.as_tree(problem.centres[:, k]))
        yield helpers.as_flat(state[0])


RNG = np.random.default_rng(1)
MESSAGES = {
    "kernel": jnp.asarray(RNG.normal(size=(4, 3, 3, 2, 6))),
    "matrix": jnp.asarray(RNG.normal(size=(4, 7, 5))),
    "vector": jnp.asarray(RNG.normal(size=(4, 9))),
    "number": jnp.asarray(RNG.normal(size=4)),
}


def reduced(reduction, messages, mesh, num_means=1):
    """Sum of the means, and the state, of reducing the same messages repeatedly."""

    def worker(message):
        state, total = reduction.init(message), optax.tree.zeros_like(message)
        for _ in range(num_means):
            mean, state = reduction.reduce(message, state)
            total = optax.tree.add(total, mean)
        return total, state

    if mesh is None:
        return jax.jit(jax.vmap(worker, axis_name=WORKERS))(messages)
    return jax.jit(on_workers(worker, mesh))(messages)


def test_nothing_is_lost_for_good(mesh):
    total, state = reduced(low_rank(2), MESSAGES, mesh, num_means=5)
    expected = jax.tree.map(lambda x: 5 * x.mean(axis=0), MESSAGES)
    unsent = dict(zip(("kernel", "matrix"), state.error, strict=True))
    for name, x in expected.items():
        arrived = total[name][0]
        if name in unsent:
            lost = unsent[name].mean(axis=0).reshape(x.shape)
            assert np.abs(lost).max() > 0.1
            arrived = arrived + lost
        np.testing.assert_allclose(arrived, x, atol=1e-12)


@pytest.mark.parametrize("error_feedback", [1.0, 0.0])
def test_all_workers_get_the_same_bits_and_keep_the_same_q(error_feedback, mesh):
    total, state = reduced(low_rank(2, error_feedback), MESSAGES, mesh, num_means=3)
    for x in jax.tree.leaves((total, state.q)):
        np.testing.assert_array_equal(x, np.broadcast_to(x[:1], x.shape))
    assert bool(state.error) == bool(error_feedback)


def test_full_rank_gives_the_exact_mean(mesh):
    mean, state = reduced(low_rank(rank=100), MESSAGES, mesh)
    for name, x in MESSAGES.items():
        np.testing.assert_allclose(mean[name][0], x.mean(axis=0), atol=1e-12)
    # The workers' own errors are not 0, but their mean is.
    assert max(np.abs(x.mean(axis=0)).max() for x in state.error) < 1e-12


def test_arrays_without_elements_are_averaged_as_they_are():
    messages = {"none": jnp.zeros((4, 3, 0)), "matrix": MESSAGES["matrix"]}
    mean, _ = reduced(low_rank(rank=100), messages, mesh=None)
    assert mean["none"].shape == (4, 3, 0)
    expected = MESSAGES["matrix"].mean(axis=0)
    np.testing.assert_allclose(mean["matrix"][0], expected, atol=1e-12)


def test_a_mean_sends_one_vector_twice_whatever_the_network():
    def worker(message):
        return low_rank(1).reduce(message, low_rank(1).init(message))

    one = jax.tree.map(lambda x: x[0], MESSAGES)
    jaxpr = jax.make_jaxpr(worker, axis_env=[(WORKERS, 4)])(one).jaxpr
    sent = [x for x in jaxpr.eqns if x.primitive.name == "psum"]
    # P of 18 and of 7 rows; Q of 6 and of 5 columns, and 10 other numbers.
    assert [[x.aval.shape for x in eqn.invars] for eqn in sent] == [[(25,)], [(21,)]]


def test_q_is_kept_where_nobody_has_anything_to_send(mesh):
    reduction = low_rank(2)
    first = reduction.init(jax.tree.map(lambda x: x[0], MESSAGES))
    nothing = jax.tree.map(jnp.zeros_like, MESSAGES)
    _, state = reduced(reduction, nothing, mesh)
    for before, after in zip(first.q, state.q, strict=True):
        np.testing.assert_array_equal(after[0], before)
    # One row, then others: all of them arrive in the end.
    row = {"matrix": jnp.zeros((4, 7, 5)).at[:, 2].set(1.0)}

    def worker(message):
        state = reduction.init(message)
        _, state = reduction.reduce(message, state)
        for _ in range(20):
            others = {"matrix": jnp.roll(message["matrix"], 2, axis=0)}
            _, state = reduction.reduce(others, state)
        return state.error

    [error] = jax.vmap(worker, axis_name=WORKERS)(row)
    assert np.abs(error).max() < 1e-6


def test_an_absent_worker_keeps_its_error_and_gets_the_common_q():
    reduction = low_rank(2)

    def worker(message, error_of, present):
        first = reduction.init(message)
        before = first._replace(error=error_of)
        sent = reduction.reduce(*outgoing(reduction, message, before, present))
        mean, after, _ = arrived(reduction, sent, before, present)
        return mean, before, after

    of_matrices = [MESSAGES["kernel"].reshape(4, 18, 6), MESSAGES["matrix"]]
    messages = jax.tree.map(lambda x: x.at[2].set(jnp.nan), MESSAGES)
    for here in ([True, True, False, True], [False] * 4):
        mean, before, after = jax.vmap(worker, axis_name=WORKERS)(
            messages, of_matrices, jnp.array(here)
        )
        for x, y in zip(before.error, after.error, strict=True):
            np.testing.assert_array_equal(y[2], x[2])
            assert here[0] != np.array_equal(y[0], x[0])
        for x in jax.tree.leaves((mean, after.q)):
            np.testing.assert_array_equal(x, np.broadcast_to(x[:1], x.shape))
            assert np.isfinite(x).all()
    for x, y in zip(before.q, after.q, strict=True):
        np.testing.assert_array_equal(y, x)  # nobody was there


@pytest.mark.parametrize("tau", [1, 2, 4, 9])
def test_a_streamed_round_sends_little_more_than_the_payload(tau):
    reduction, strategy = low_rank(1), STRATEGIES["cocod_sgd"]
    params = {"w": jnp.zeros((600, 300)), "b": jnp.zeros(300)}
    payload = 8 * (600 + 300 + 300)
    assert reduction.payload(params) == payload
    state = init_state(params, OPTIMIZER, strategy, num_workers=2, reduction=reduction)
    batches = jax.tree.map(lambda x: jnp.zeros((2, tau, *x.shape)), params)
    code = make_worker_round(
        loss, OPTIMIZER, strategy, reduction=reduction, form=fragments_form()
    )
    sent = payload_bytes(code, state, batches, num_workers=2)
    # Parts have one shape, and fill whole tiles of 1024 numbers if they are larger.
    assert payload <= sent < 1.5 * payload


def test_the_compiled_program_sends_the_payload():
    reduction, mesh = low_rank(), worker_mesh(4)

    def worker(message):
        return reduction.reduce(message, reduction.init(message))

    one = jax.tree.map(lambda x: x[0], MESSAGES)
    program = jax.jit(on_workers(worker, mesh)).lower(to_workers(one, 4, mesh))
    sent = overlap_report(program.compile()).mean_bytes
    # A kernel of 18 x 6 and a matrix of 7 x 5 in rank 4, and 10 other numbers.
    assert sent == reduction.payload(one) == 8 * (4 * (18 + 6 + 7 + 5) + 10)
