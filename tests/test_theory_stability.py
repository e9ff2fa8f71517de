"""Which runs diverge: closed forms, the real round, and how fast it grows.

All local optimizers have the learning rate 1, so a curvature h stands for γ h.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from olsgd_jax import (
    WORKERS,
    Strategy,
    cocod_sgd,
    delayed_diloco,
    diloco,
    eager_diloco,
    easgd,
    init_state,
    local_sgd,
    make_worker_round,
    overlap_local_sgd,
    plain_loss,
    slowmo,
    streaming_diloco,
    sync_sgd,
)
from olsgd_jax.strategies.outer import nesterov as outer_nesterov
from olsgd_jax.theory import nearest_stable, round_radii, stable_curvature
from olsgd_jax.theory.linear_round import linear_rounds

M = 4  # workers
SGD, HEAVY_BALL = optax.sgd(1.0), optax.sgd(1.0, momentum=0.9)
NESTEROV = optax.sgd(1.0, momentum=0.9, nesterov=True)
OPTIMIZERS = {
    "sgd": SGD,
    "nesterov": NESTEROV,
    "decay": optax.chain(optax.add_decayed_weights(0.1), HEAVY_BALL),
}


OUTER = outer_nesterov(0.7, 0.9)


def delayed_outer(rate, momentum, nesterov=True):
    return delayed_diloco(optax.sgd(rate, momentum, nesterov=nesterov))


STRATEGIES = {
    "sync_sgd": sync_sgd(),
    "local_sgd": local_sgd(),
    "slowmo": slowmo(0.7),
    "easgd": easgd(0.9, M),
    "cocod_sgd": cocod_sgd(),
    "cocod_momentum": cocod_sgd(0.7),
    "overlap_local_sgd": overlap_local_sgd(0.6, 0.7),
    "rated_velocity": overlap_local_sgd(0.6, 0.7, optax.constant_schedule(0.5)),
    "diloco": diloco(OUTER),
    "delayed_diloco": delayed_diloco(OUTER),
    "eager_diloco": eager_diloco(M, OUTER),
}
every_strategy = pytest.mark.parametrize("name", STRATEGIES)
every_optimizer = pytest.mark.parametrize("optimizer", OPTIMIZERS)
every_period = pytest.mark.parametrize("tau", [1, 4])


def radii(strategy, curvature, tau=1, optimizer=SGD):
    return round_radii(strategy, optimizer, sync_period=tau, curvature=curvature)


def limits(strategy, tau=1, optimizer=SGD):
    return stable_curvature(strategy, optimizer, sync_period=tau)


# The oracle is a round of the library.


def worker_round(strategy, optimizer):
    """One round of M workers on h x² / 2; batches are curvatures (worker, step)."""
    loss = plain_loss(lambda x, h: h * jnp.vdot(x, x) / 2)
    return jax.vmap(make_worker_round(loss, optimizer, strategy), axis_name=WORKERS)


def parts_of(state):
    """The parts of a worker's state that a round maps linearly."""
    return state.params, state.opt_state, state.strategy_state


def with_parts(state, parts):
    names = "params", "opt_state", "strategy_state"
    return state._replace(**dict(zip(names, parts, strict=True)))


def is_number(x):
    return jnp.issubdtype(x.dtype, jnp.inexact)  # not a counter


def numbers(parts):
    return jnp.stack([x for x in jax.tree.leaves(parts) if is_number(x)], axis=-1)


def random_state(strategy, optimizer):
    """A state of M workers with random numbers, equal where workers share them."""
    rng = np.random.default_rng(0)
    state = init_state(jnp.zeros(()), optimizer, strategy, num_workers=M)
    differs = iter(linear_rounds(strategy, optimizer).disagreement.differs)

    def draw(x):
        if not is_number(x):
            return x
        own = rng.normal(size=M) if next(differs) else np.zeros(M)
        return jnp.asarray(rng.normal() + own)

    return with_parts(state, jax.tree.map(draw, parts_of(state)))


@every_strategy
@every_optimizer
@every_period
def test_a_round_of_the_library_is_the_oracle_s(name, optimizer, tau):
    strategy, optimizer, h = STRATEGIES[name], OPTIMIZERS[optimizer], np.array(0.3)
    rounds = linear_rounds(strategy, optimizer)
    differs = rounds.disagreement.differs
    state = random_state(strategy, optimizer)
    before = np.asarray(numbers(parts_of(state)))
    state, _ = worker_round(strategy, optimizer)(state, jnp.full((M, tau), h))
    after = np.asarray(numbers(parts_of(state)))

    mean = rounds.consensus.matrix(tau, h) @ before.mean(axis=0)
    np.testing.assert_allclose(after.mean(axis=0), mean, rtol=0, atol=1e-12)
    deviation = np.zeros_like(before)
    own = (before - before.mean(axis=0))[:, differs]
    deviation[:, differs] = own @ rounds.disagreement.matrix(tau, h).T
    np.testing.assert_allclose(
        after - after.mean(axis=0), deviation, rtol=0, atol=1e-12
    )


@functools.cache
def growth_of(name, optimizer, tau):
    """Measures how much a state grows per round, over the last 200 rounds of 400."""
    strategy, optimizer = STRATEGIES[name], OPTIMIZERS[optimizer]
    run = worker_round(strategy, optimizer)
    first = random_state(strategy, optimizer)

    @jax.jit
    def growth(h):
        def one_round(state, _):
            state, _ = run(state, jnp.full((M, tau), h))
            size = jnp.linalg.norm(numbers(parts_of(state)))

            def scale(x):  # back to 1, so that nothing overflows
                return x / size if is_number(x) else x

            parts = jax.tree.map(scale, parts_of(state))
            return with_parts(state, parts), jnp.log(size)

        _, logs = jax.lax.scan(one_round, first, length=400)
        return jnp.exp(logs[200:].mean())

    return growth


@every_strategy
@pytest.mark.parametrize("optimizer", ["sgd", "nesterov"])
@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_a_run_grows_by_the_radius_on_either_side_of_the_limit(name, optimizer, factor):
    # A state that turns as it grows is up to a few times larger after some rounds than
    # after others: over 200 rounds, less than 1 % per round.
    strategy, tau = STRATEGIES[name], 2
    h = factor * min(limits(strategy, tau, OPTIMIZERS[optimizer]))
    of_round = radii(strategy, h, tau, OPTIMIZERS[optimizer])
    growth = growth_of(name, optimizer, tau)(h)
    np.testing.assert_allclose(growth, max(of_round), rtol=0.01)
    assert of_round.is_stable == (factor < 1)


# Closed forms.


@pytest.mark.parametrize("strategy", [sync_sgd(), local_sgd()])
@every_period
def test_sgd_is_stable_up_to_2_over_the_rate(strategy, tau):
    np.testing.assert_allclose(min(limits(strategy, tau)), 2, rtol=1e-6)


@pytest.mark.parametrize("mu", [0.5, 0.9])
@pytest.mark.parametrize("nesterov", [False, True])
def test_momentum_is_stable_up_to_its_closed_form(mu, nesterov):
    optimizer = optax.sgd(1.0, momentum=mu, nesterov=nesterov)
    expected = 2 * (1 + mu) / (1 + 2 * mu if nesterov else 1)
    found = limits(sync_sgd(), optimizer=optimizer).consensus
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("num_fragments", [1, 3])
@pytest.mark.parametrize("pullback", [0.5, 1.0])
def test_a_fragment_that_waits_for_its_turn_is_one_of_longer_rounds(
    num_fragments, pullback
):
    # P rounds of τ steps are a round of P τ, whose mean is τ steps old.
    outer, h = optax.sgd(1.0), np.array([0.3, 1.2])
    streaming = streaming_diloco(num_fragments, outer, pullback, delayed=False)
    found = radii(streaming, h, tau=2)
    contraction = (1 - h) ** (2 * num_fragments)
    np.testing.assert_allclose(found.consensus**num_fragments, contraction, atol=1e-12)
    np.testing.assert_allclose(
        found.disagreement**num_fragments, (1 - pullback) * contraction, atol=1e-12
    )


def test_rounds_that_never_repeat_are_refused():
    decaying = optax.sgd(optax.linear_schedule(0.7, 0.1, 10))
    with pytest.raises(ValueError, match="rounds of diloco must repeat after at most"):
        radii(diloco(decaying), 0.5)


@every_period
def test_cocod_sgd_grows_apart_where_a_round_undoes_more_than_it_moves(tau):
    h = np.array([0.3, 0.9, 1.5])
    found = radii(cocod_sgd(), h, tau)
    contraction = (1 - h) ** tau
    np.testing.assert_allclose(found.consensus, abs(contraction), atol=1e-12)
    np.testing.assert_allclose(found.disagreement, 1 - contraction, atol=1e-12)


@pytest.mark.parametrize("beta", [0.0, 0.7])
@pytest.mark.parametrize("step_size", [0.5, 1.0])
def test_slowmo_at_every_step_is_a_heavy_ball(beta, step_size):
    found = limits(slowmo(beta, step_size)).consensus
    np.testing.assert_allclose(found, 2 * (1 + beta) / step_size, rtol=1e-6)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
@every_period
def test_a_pullback_shrinks_disagreement_by_its_closed_form(alpha, tau):
    h = np.array([0.0, 0.4, 1.3])
    found = radii(overlap_local_sgd(alpha, 0.7), h, tau).disagreement
    np.testing.assert_allclose(found, (1 - alpha) * abs((1 - h) ** tau), atol=1e-12)


@pytest.mark.parametrize("h", [0.2, 0.5, 1.0])
def test_delayed_outer_nesterov_has_the_roots_of_its_polynomial(h):
    # x' = x − η (d + β v), v = β v + d, d = h x of the round before:
    # z (z − 1) (z − β) + η h ((1 + β) z − β) = 0.
    rate, beta = 0.7, 0.9
    roots = np.roots([1, -1 - beta, beta + rate * h * (1 + beta), -rate * h * beta])
    found = radii(delayed_outer(rate, beta), h).consensus
    np.testing.assert_allclose(found, abs(roots).max(), rtol=1e-9)


def test_delayed_outer_heavy_ball_is_stable_up_to_its_closed_form():
    # z² − (1 + β) z + β + η h = 0 has roots in the unit circle if β + η h < 1.
    found = limits(delayed_outer(0.7, 0.9, nesterov=False)).consensus
    np.testing.assert_allclose(found, 0.1 / 0.7, rtol=1e-5)


# Predictions. A round that contracts by c is one local step with h = 1 − c.

CONTRACTIONS = np.linspace(0, 0.999, 200)


def test_delayed_outer_nesterov_diverges_where_a_round_contracts_below_0_64():
    stable = radii(delayed_outer(0.7, 0.9), 1 - CONTRACTIONS).is_stable
    np.testing.assert_array_equal(stable, CONTRACTIONS > 0.6384)


def test_eager_outer_nesterov_of_16_diverges_where_a_round_contracts_below_0_595():
    stable = radii(eager_diloco(16, OUTER), 1 - CONTRACTIONS).is_stable
    np.testing.assert_array_equal(stable, CONTRACTIONS > 0.5946)


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.6, 1.0])
@pytest.mark.parametrize("beta", [0.0, 0.7, 0.95])
def test_overlap_local_sgd_diverges_nowhere(alpha, beta):
    assert radii(overlap_local_sgd(alpha, beta), 1 - CONTRACTIONS).is_stable.all()


@pytest.mark.parametrize("m", [2, 16])
def test_disagreement_of_eager_outer_never_heals(m):
    found = radii(eager_diloco(m, OUTER), np.linspace(0, 1, 11)).disagreement
    np.testing.assert_allclose(found, 1, rtol=0, atol=1e-6)


def test_momentum_on_both_sides_of_a_delay_costs_most_of_the_rate():
    behind = cocod_sgd(0.7, 0.3)
    assert round(min(limits(local_sgd(), optimizer=NESTEROV)), 2) == 1.36
    assert round(min(limits(behind, optimizer=NESTEROV)), 2) == 0.12


def test_outer_momentum_alone_moves_the_limit_of_the_consensus_only():
    found = limits(cocod_sgd(0.9, 1.0))
    np.testing.assert_allclose(found, [2 * (1 + 0.9), 1], rtol=1e-6)


@every_strategy
@pytest.mark.parametrize("optimizer", ["sgd", "nesterov"])
def test_small_rates_are_stable(name, optimizer):
    assert min(limits(STRATEGIES[name], tau=8, optimizer=OPTIMIZERS[optimizer])) > 0


def test_a_repeated_round_that_always_grows_has_no_limit_above_0():
    def mix(start, end, mean, state):
        return 1.01 * mean, state

    growing = Strategy("growing", "end", lambda params: (), mix)
    assert limits(growing) == (0.0, float("inf"))


# The nearest stable setting.


def test_the_nearest_stable_value_is_on_the_limit():
    args = {"rate": 0.7, "momentum": 0.9}
    near = nearest_stable(delayed_outer, args, SGD, sync_period=1, curvature=0.5)
    assert near.keys() == args.keys()
    for name, value in near.items():
        limit = min(limits(delayed_outer(**{**args, name: value})))
        assert 0.5 <= limit < 0.52


def test_a_stable_setting_is_nearest_to_itself():
    args = {"pullback": 0.6, "anchor_momentum": 0.7}
    near = nearest_stable(overlap_local_sgd, args, SGD, sync_period=4, curvature=1.5)
    assert near == args


def test_values_that_a_strategy_refuses_are_not_proposed():
    # Beyond 2 / γ, only a pullback of 1 is stable: it drops all local steps.
    args = {"pullback": 0.6, "anchor_momentum": 0.0}
    near = nearest_stable(overlap_local_sgd, args, SGD, sync_period=4, curvature=3.0)
    assert near == {"pullback": pytest.approx(1, abs=0.001)}
    assert near["pullback"] <= 1


def test_whole_numbers_are_kept():
    args = {"moving_rate": 0.9, "num_workers": 4}
    near = nearest_stable(easgd, args, SGD, sync_period=1, curvature=1.0)
    assert near == {"moving_rate": 0.9}


# Refusals.


def outer_adam():
    outer = optax.adam(0.1)

    def mix(start, end, mean, state):
        update, state = outer.update(optax.tree.sub(start, mean), state, start)
        return optax.apply_updates(start, update), state

    return Strategy("outer_adam", "end", outer.init, mix, common=("params",))


@pytest.mark.parametrize(
    ("strategy", "optimizer", "message"),
    [
        (outer_adam(), SGD, "the mix of outer_adam is not"),
        (local_sgd(), optax.adam(0.1), "the local step of local_sgd is not"),
        (
            local_sgd(),
            optax.chain(optax.clip_by_global_norm(1e3), SGD),
            "the local step of local_sgd is not",
        ),
    ],
)
def test_what_is_not_linear_is_refused(strategy, optimizer, message):
    with pytest.raises(ValueError, match=message):
        radii(strategy, 0.5, optimizer=optimizer)


def test_a_field_that_workers_do_not_share_has_to_be_named():
    forgetful = eager_diloco(M, OUTER)._replace(own=("progress",))
    with pytest.raises(ValueError, match="own of eager_diloco must name every field"):
        radii(forgetful, 0.5)


def test_it_computes_in_float64_without_changing_what_jax_does():
    with jax.enable_x64(False):
        found = min(limits(local_sgd(), optimizer=NESTEROV))
        assert jnp.zeros(()).dtype == jnp.float32
    np.testing.assert_allclose(found, 2 * 1.9 / 2.8, rtol=1e-6)
