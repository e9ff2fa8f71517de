"""Optimizers and learning rates that a config names, against their definitions."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from olsgd_jax.training import OPTIMIZERS, Config, Transformer, train
from olsgd_jax.training.components import build_optimizer, build_schedule
from olsgd_jax.training.components.optimizer import MUON_RMS, kernel_axes

COSINE = {
    "schedule": "warmup_cosine",
    "learning_rate": 1e-3,
    "num_rounds": 200,
    "sync_period": 10,
    "warmup_steps": 100,
}


@pytest.fixture
def as_users_have_it():
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        yield


def rates(steps, **options):
    schedule = build_schedule(Config(**COSINE | options), num_examples=1000)
    return [float(schedule(step)) for step in steps]


def test_the_rate_rises_in_a_line_and_falls_along_a_cosine():
    steps = [0, 49, 99, 100, 575, 1050, 2000, 3000]
    quarter = 0.1 + 0.9 * (1 + np.cos(np.pi / 4)) / 2
    expected = [1 / 101, 50 / 101, 100 / 101, 1, quarter, 0.55, 0.1, 0.1]
    np.testing.assert_allclose(rates(steps), 1e-3 * np.array(expected), rtol=1e-5)


def test_the_rate_may_fall_to_zero_and_begin_in_full():
    assert rates([2000], final_fraction=0.0) == [0]
    np.testing.assert_allclose(rates([0], warmup_steps=0), 1e-3)


def test_a_scaled_rate_scales_all_of_the_cosine():
    scaled = rates([0, 100, 2000], scale_learning_rate=True, num_workers=8)
    expected = 8 * 32 / 128 * np.array(rates([0, 100, 2000]))
    np.testing.assert_allclose(scaled, expected, rtol=1e-6)


def test_a_cosine_ends_with_the_run_whatever_workers_it_had():
    schedule = build_schedule(Config(**COSINE), num_examples=1000, ahead=500.0)
    np.testing.assert_allclose(schedule(2000), 1e-4, rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"warmup_epochs": 1.0},
            "warmup_epochs must be left out with schedule warmup_cosine, which has no "
            "use for it, got 1.0",
        ),
        (
            {"schedule": "steps"},
            "warmup_steps must be left out with schedule steps, which has no use for "
            "it, got 100",
        ),
        (
            {"warmup_steps": 2000},
            "warmup_steps must be below the number of local steps in the run, got 2000 "
            "and 2000; use fewer, or more num_rounds",
        ),
    ],
)
def test_options_of_another_schedule_are_errors(options, message):
    with pytest.raises(ValueError, match=message):
        rates([0], **options)


def test_options_of_another_optimizer_are_errors():
    with pytest.raises(ValueError, match="beta2 must be left out with optimizer sgd"):
        build_optimizer(Config(beta2=0.99), lambda step: 0.1)
    with pytest.raises(ValueError, match="optimizer must be one of sgd, adamw, muon"):
        build_optimizer(Config(optimizer="adam"), lambda step: 0.1)


@jax.numpy_dtype_promotion("standard")  # optax needs it
def test_adamw_follows_its_definition():
    # m ← β₁ m + (1 − β₁) g;  v ← β₂ v + (1 − β₂) g²
    # x ← x − γ (m / (1 − β₁ᵏ) / (√(v / (1 − β₂ᵏ)) + ε) + λ x)
    config = Config(optimizer="adamw", momentum=0.9, beta2=0.99, weight_decay=0.1)
    optimizer = build_optimizer(config, lambda step: 0.01)
    x, m, v = 2.0, 0.0, 0.0
    state = optimizer.init(jnp.array(x))
    for k, gradient in enumerate((1.0, -3.0, 0.5), start=1):
        updates, state = optimizer.update(jnp.array(gradient), state, jnp.array(x))
        m = 0.9 * m + 0.1 * gradient
        v = 0.99 * v + 0.01 * gradient**2
        step = m / (1 - 0.9**k) / (np.sqrt(v / (1 - 0.99**k)) + 1e-8)
        expected = -0.01 * (step + 0.1 * x)
        np.testing.assert_allclose(updates, expected, rtol=1e-10)
        x += expected


def transformer_params():
    module = Transformer(num_tokens=11, width=8, depth=1, num_heads=2)
    return module.init(jax.random.key(0), jnp.zeros((1, 4), int))["params"]


@pytest.mark.usefixtures("as_users_have_it")
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("decay_vectors", [True, False])
def test_weight_decay_is_for_matrices_alone_if_asked_for(optimizer, decay_vectors):
    config = Config(
        optimizer=optimizer, weight_decay=0.5, decay_vectors=decay_vectors, momentum=0
    )
    # Biases are zero at first, and would show no decay.
    params = jax.tree.map(jnp.ones_like, transformer_params())
    chain = build_optimizer(config, lambda step: 0.5)
    zeros = jax.tree.map(jnp.zeros_like, params)
    updates, _ = chain.update(zeros, chain.init(params), params)
    for path, update in jax.tree.leaves_with_path(updates):
        is_matrix = path[-1].key in ("kernel", "embedding")
        expected = -0.25 if is_matrix or decay_vectors else 0.0
        np.testing.assert_allclose(update, expected, atol=1e-6, err_msg=str(path))


@pytest.mark.usefixtures("as_users_have_it")
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_gradient_is_cut_to_the_largest_norm(optimizer):
    params = {"a": jnp.ones(1), "b": jnp.ones((1, 1))}

    def updates(norms, clip_norm):
        config = Config(optimizer=optimizer, clip_norm=clip_norm)
        chain = build_optimizer(config, lambda step: 0.1)
        state = chain.init(params)
        for norm in norms:  # of the gradients
            grads = {"a": jnp.array([0.6 * norm]), "b": jnp.array([[0.8 * norm]])}
            got, state = chain.update(grads, state, params)
        return np.concatenate([x.flatten() for x in jax.tree.leaves(got)])

    # Two steps, since the first one of Adam does not depend on the norm.
    cut, short = updates([3.0, -0.5], 1.0), updates([1.0, -0.5], None)
    np.testing.assert_allclose(cut, short, rtol=1e-5)
    assert np.any(np.abs(short - updates([3.0, -0.5], None)) > 1e-3)


@pytest.mark.usefixtures("as_users_have_it")
def test_muon_makes_the_kernels_of_layers_orthogonal():
    params = transformer_params()
    config = Config(optimizer="muon", weight_decay=0.0, momentum=0.95)
    chain = build_optimizer(config, lambda step: 1.0)
    keys = iter(jax.random.split(jax.random.key(1), len(jax.tree.leaves(params))))
    grads = jax.tree.map(lambda x: jax.random.normal(next(keys), x.shape), params)
    updates, _ = chain.update(grads, chain.init(params), params)
    attention = updates["MultiHeadDotProductAttention_0"]
    kernels = {
        "query": attention["query"]["kernel"].reshape(8, 8),
        "out": attention["out"]["kernel"].reshape(8, 8),
        "dense": updates["Dense_0"]["kernel"],
    }
    for name, kernel in kernels.items():
        # Five Newton-Schulz iterations leave singular values between 0.7 and 1.2.
        values = np.linalg.svd(kernel, compute_uv=False)
        values /= MUON_RMS * np.sqrt(max(kernel.shape))
        assert 0.6 < values.min() <= values.max() < 1.25, name
    # Adam's first step, which looks ahead by half of the gradient's sign.
    embedding = updates["Embed_0"]["embedding"]
    assert np.ptp(np.abs(embedding)) < 1e-4


def test_heads_are_outputs_of_queries_and_inputs_of_what_joins_them():
    axes = kernel_axes(transformer_params())
    attention = axes["MultiHeadDotProductAttention_0"]
    for name in ("query", "key", "value"):
        assert attention[name]["kernel"] == ((0,), (1, 2))
    assert attention["out"]["kernel"] == ((0, 1), (2,))
    assert axes["Dense_0"]["kernel"] == ((0,), (1,))
    assert axes["Embed_0"]["embedding"] is None
    assert attention["query"]["bias"] is None
    convolution = {"Conv_0": {"kernel": jnp.zeros((3, 3, 4, 5))}}
    assert kernel_axes(convolution)["Conv_0"]["kernel"] == ((0, 1, 2), (3,))


SMALL = {"width": 4, "batch_size": 8, "num_rounds": 1, "weight_decay": 0.0}


@pytest.mark.usefixtures("as_users_have_it")
@pytest.mark.parametrize("strategy", ["overlap_local_sgd", "cocod_sgd"])
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_run_names_its_optimizer(strategy, optimizer):
    config = Config(strategy=strategy, optimizer=optimizer, learning_rate=0.02, **SMALL)
    [record] = train(config)
    assert 0 < record.test_loss < 2.5
    assert record.spread > 0


@pytest.mark.usefixtures("as_users_have_it")
def test_any_optimizer_of_optax_can_be_named(monkeypatch):
    monkeypatch.setitem(
        OPTIMIZERS, "lion", lambda config, schedule: optax.lion(schedule)
    )
    [record] = train(Config(optimizer="lion", learning_rate=0.02, **SMALL))
    assert 0 < record.test_loss < 2.5
