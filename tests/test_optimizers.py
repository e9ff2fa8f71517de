"""What optax calls an optimizer, under `make_round`, against loops that use it plainly.

The loop below is what optax's documentation says to do with one model, for every
worker by itself; after every round it averages the models, as Local SGD does.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from optax import contrib

from olsgd_jax import (
    exact,
    init_state,
    local_sgd,
    low_rank,
    make_round,
    model_of,
    overlap_local_sgd,
    plain_loss,
    sync_sgd,
)
from olsgd_jax.round.optimizer_step import trained

TAU, BATCH = 6, 5
NORMALIZED = optax.chain(contrib.normalize(), optax.sgd(0.05))
SAM = contrib.sam(optax.adam(0.1), NORMALIZED)
ADAMW32 = optax.inject_hyperparams(optax.adamw, hyperparam_dtype=jnp.float32)
LOOKAHEAD = optax.lookahead(optax.adam(0.1), sync_period=4, slow_step_size=0.5)

OPTIMIZERS = {
    "adabelief": optax.adabelief(0.1),
    "adadelta": optax.adadelta(0.1),
    "adafactor": optax.adafactor(0.1),
    "adagrad": optax.adagrad(0.1),
    "adam": optax.adam(0.1),
    "adam with moments in float32": optax.adam(0.1, mu_dtype=jnp.float32),
    "adamax": optax.adamax(0.1),
    "adan": optax.adan(0.1),
    "adamw": optax.adamw(0.1),
    "amsgrad": optax.amsgrad(0.1),
    "fromage": optax.fromage(0.1),
    "lamb": optax.lamb(0.1),
    "lars": optax.lars(0.1),
    "lion": optax.lion(0.1),
    "nadam": optax.nadam(0.1),
    "noisy_sgd": optax.noisy_sgd(0.1, key=0),
    "novograd": optax.novograd(0.1),
    "optimistic gradient descent": optax.optimistic_gradient_descent(0.1),
    "polyak_sgd": optax.polyak_sgd(),
    "radam": optax.radam(0.1),
    "rmsprop": optax.rmsprop(0.1),
    "rprop": optax.rprop(0.1),
    "sgd": optax.sgd(0.1, momentum=0.9),
    "sign_sgd": optax.sign_sgd(0.1),
    "sm3": optax.sm3(0.1),
    "yogi": optax.yogi(0.1),
    "acprop": contrib.acprop(0.1),
    "ademamix": contrib.ademamix(0.1),
    "adopt": contrib.adopt(0.1),
    "cocob": contrib.cocob(),
    "dadapt_adamw": contrib.dadapt_adamw(),
    "dog": contrib.dog(0.1),
    "madgrad": contrib.madgrad(0.1),
    "mechanic": contrib.mechanize(optax.sgd(0.1)),
    "momo": contrib.momo(0.1),
    "momo_adam": contrib.momo_adam(0.1),
    "muon": contrib.muon(0.1),
    "prodigy": contrib.prodigy(),
    "reduce_on_plateau": optax.chain(
        optax.sgd(0.1), contrib.reduce_on_plateau(patience=1)
    ),
    "schedule_free": contrib.schedule_free_adamw(0.1),
    "inject_hyperparams": ADAMW32(learning_rate=0.1),
    "inject_hyperparams with a schedule": ADAMW32(
        learning_rate=optax.linear_schedule(0.1, 0.0, 20)
    ),
    "sam": SAM,
    "sam in a chain": optax.chain(
        optax.clip(1.0), contrib.sam(optax.sgd(0.1), NORMALIZED, sync_period=3)
    ),
    "lookahead": LOOKAHEAD,
    "lookahead that resets": optax.lookahead(optax.sgd(0.1), 4, 0.5, reset_state=True),
    "MultiSteps": optax.MultiSteps(optax.adam(0.1), 4).gradient_transformation(),
    "apply_if_finite": optax.apply_if_finite(optax.adam(0.1), 3),
    "masked": optax.masked(optax.adam(0.1), {"b": False, "w": True}),
    "partition": optax.partition(
        {"adam": optax.adam(0.1), "sgd": optax.sgd(0.1)}, {"b": "sgd", "w": "adam"}
    ),
    "clipped": optax.chain(optax.clip_by_global_norm(0.5), optax.adam(0.1)),
    "adaptive_grad_clip": optax.chain(optax.adaptive_grad_clip(0.1), optax.sgd(0.1)),
}
# Evaluate the loss themselves; the loop hands them what optax says they need.
EVALUATING = {
    "lbfgs": optax.lbfgs(),
    "backtracking": optax.chain(
        optax.sgd(0.1), optax.scale_by_backtracking_linesearch(4)
    ),
    "opaque sam": contrib.sam(optax.adam(0.1), NORMALIZED, opaque_mode=True),
}


@pytest.fixture(autouse=True)
def as_users_have_it():
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        yield


def loss(params, batch):
    x, y = batch
    out = x @ params["w"].astype(jnp.float32) + params["b"].astype(jnp.float32)
    return jnp.mean((out - y) ** 2)


def problem(dtype, m, optimizer):
    rng = np.random.default_rng(0)
    params = {
        "b": jnp.asarray(rng.normal(size=4), dtype),
        "w": jnp.asarray(rng.normal(size=(3, 4)), dtype),
    }
    if optimizer in (LOOKAHEAD, OPTIMIZERS["lookahead that resets"]):
        params = optax.LookaheadParams.init_synced(params)
    batches = [
        jnp.asarray(rng.normal(size=(m, 2 * TAU, BATCH, n)), jnp.float32)
        for n in (3, 4)
    ]
    return params, tuple(batches)


def wanted_of(name, batch):
    """What optax says an optimizer needs beside gradients, state and params."""
    if name == "opaque sam":
        return {"grad_fn": lambda params, i: jax.grad(loss)(params, batch)}
    return {"value_fn": lambda params: loss(params, batch)}


def plain_loop(name, optimizer, params, batches):
    """Yields the models of all workers after every round."""
    m = len(batches[0])
    update = optax.with_extra_args_support(optimizer).update

    @jax.jit
    def step(params, state, batch):
        value, grads = jax.value_and_grad(loss)(trained(params), batch)
        extra = {} if "sam" in name else {"value": value}
        if name in EVALUATING:
            extra |= wanted_of(name, batch)
            extra |= {} if "sam" in name else {"grad": grads}
        updates, state = update(grads, state, params, **extra)
        return optax.apply_updates(params, updates), state

    models, states = [params] * m, [optimizer.init(params)] * m
    for k in range(2 * TAU):
        for i in range(m):
            batch = tuple(x[i, k] for x in batches)
            models[i], states[i] = step(models[i], states[i], batch)
        if (k + 1) % TAU == 0:
            mean = jax.tree.map(lambda *x: sum(y / m for y in x), *models)
            models = [mean] * m
            yield mean


def rounds(optimizer, params, batches, strategy=None, tau=TAU, **options):
    """Yields the states after every round."""
    strategy, m = strategy or local_sgd(), len(batches[0])
    state = init_state(params, optimizer, strategy, num_workers=m, **options)
    run = make_round(plain_loss(loss), optimizer, strategy, sync_period=tau, **options)
    for first in range(0, 2 * TAU, tau):
        state, record = run(state, tuple(x[:, first : first + tau] for x in batches))
        assert np.isfinite(record.loss).all()
        yield state


def assert_close(state, params, dtype):
    # Roundings of bfloat16 differ between one program of all steps and one of each.
    tolerance = 2e-5 if dtype == "float32" else 4e-2
    for x, y in zip(
        jax.tree.leaves(state.params), jax.tree.leaves(params), strict=True
    ):
        assert x.dtype == y.dtype == dtype
        for own in np.asarray(x, np.float32):
            np.testing.assert_allclose(
                own, np.asarray(y, np.float32), rtol=tolerance, atol=tolerance
            )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_workers_step_as_optax_says(name, dtype):
    optimizer = OPTIMIZERS[name]
    params, batches = problem(dtype, 2, optimizer)
    expected = plain_loop(name, optimizer, params, batches)
    for state, mean in zip(rounds(optimizer, params, batches), expected, strict=True):
        assert_close(state, mean, dtype)


@pytest.mark.parametrize("name", ["sam", "lookahead", "inject_hyperparams"])
def test_one_worker_is_the_plain_loop(name):
    params, batches = problem("float32", 1, OPTIMIZERS[name])
    expected = plain_loop(name, OPTIMIZERS[name], params, batches)
    found = rounds(OPTIMIZERS[name], params, batches)
    for state, mean in zip(found, expected, strict=True):
        assert_close(state, mean, "float32")


@pytest.mark.parametrize("name", EVALUATING)
def test_optimizers_that_evaluate_the_loss_do_so_on_their_workers_batch(name):
    params, batches = problem("float32", 2, EVALUATING[name])
    expected = plain_loop(name, EVALUATING[name], params, batches)
    found = rounds(EVALUATING[name], params, batches)
    for state, mean in zip(found, expected, strict=True):
        # A line search stops where rounding says so.
        np.testing.assert_allclose(
            state.params["w"][0], mean["w"], rtol=1e-3, atol=1e-3
        )


@pytest.mark.parametrize("reduction", [exact(), low_rank(rank=1)], ids=lambda x: x.name)
@pytest.mark.parametrize("name", ["polyak_sgd", "momo", "lookahead", "sam"])
def test_workers_that_average_gradients_stay_equal(name, reduction):
    params, batches = problem("float32", 2, OPTIMIZERS[name])
    for state in rounds(
        OPTIMIZERS[name], params, batches, sync_sgd(), reduction=reduction
    ):
        for x in jax.tree.leaves(state.params):
            np.testing.assert_array_equal(x[0], x[1])


def test_lookahead_workers_average_both_models_and_test_the_slow_one():
    params, batches = problem("float32", 2, LOOKAHEAD)
    strategy = overlap_local_sgd(0.6)
    *_, state = rounds(LOOKAHEAD, params, batches, strategy)
    assert isinstance(state.params, optax.LookaheadParams)
    consensus, _ = model_of(state, strategy, "consensus")
    slow = jax.tree.map(lambda x: x.mean(axis=0), state.params.slow)
    np.testing.assert_allclose(consensus.slow["w"], slow["w"], rtol=1e-6)


def test_lookahead_of_a_plain_model_is_refused_with_the_fix():
    params, batches = problem("float32", 2, None)
    with pytest.raises(TypeError, match="optax.LookaheadParams.init_synced"):
        next(rounds(LOOKAHEAD, params, batches))


def test_a_round_may_not_end_at_an_adversarial_model():
    params, batches = problem("float32", 2, SAM)
    with pytest.raises(ValueError, match="multiple of the 2 steps that optax.contrib"):
        next(rounds(SAM, params, batches, tau=3))


def test_a_decay_rate_that_is_rounded_to_one_is_refused():
    params, batches = problem("bfloat16", 2, None)
    optimizer = optax.inject_hyperparams(optax.adamw)(learning_rate=0.1)
    with pytest.raises(ValueError, match="hyperparam_dtype=jnp.float32"):
        next(rounds(optimizer, params, batches))


def test_an_optimizer_that_needs_what_nobody_has_is_refused():
    params, batches = problem("float32", 2, None)
    with pytest.raises(TypeError, match="optimizer must need nothing but"):
        next(rounds(optax.lbfgs(), params, batches, sync_sgd()))


def test_a_state_starts_in_the_dtype_that_steps_give_it():
    def update(updates, state, params=None):
        del params
        return updates, state + jnp.float32(1)

    def init(params):
        del params
        return jnp.zeros((), jnp.bfloat16)

    params, batches = problem("bfloat16", 2, None)
    optimizer = optax.GradientTransformation(init, update)
    assert init_state(
        params, optimizer, local_sgd(), num_workers=2
    ).opt_state.dtype == (jnp.float32)
    *_, state = rounds(optimizer, params, batches)
    assert state.opt_state.tolist() == [2 * TAU, 2 * TAU]


def keeping_the_value():
    """An optimizer that goes nowhere, and keeps what it is told of the loss."""

    def update(updates, state, params=None, *, value=None, **extra):
        del state, params, extra
        value = jnp.full((), jnp.nan) if value is None else jnp.asarray(value)
        return jax.tree.map(jnp.zeros_like, updates), value

    return optax.GradientTransformationExtraArgs(lambda params: jnp.zeros(()), update)


def test_the_loss_of_a_step_is_what_the_optimizer_gets_as_its_value():
    loss = plain_loss(lambda x, centre: (x - centre) ** 2 / 2)
    optimizer = keeping_the_value()
    run = make_round(loss, optimizer, local_sgd(), sync_period=2)
    state = init_state(jnp.zeros(()), optimizer, local_sgd(), num_workers=2)
    state, record = run(state, jnp.array([[1.0, 2.0], [3.0, 4.0]]))
    assert state.opt_state.tolist() == [2.0, 8.0] == record.loss[:, -1].tolist()
