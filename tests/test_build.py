"""A config's names and numbers become what they say."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from olsgd_jax import STRATEGIES
from olsgd_jax.training import (
    Config,
    load_dataset,
    normalise,
    outline_dataset,
    partition_iid,
)
from olsgd_jax.training.components import (
    build,
    build_mesh,
    build_optimizer,
    build_reduction,
    build_schedule,
    build_strategy,
    build_task,
)


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_can_be_built_from_its_name_alone(name):
    assert build_strategy(Config(strategy=name)).name == name


def test_a_strategy_gets_its_arguments():
    strategy = build_strategy(Config(strategy_args={"pullback": 0.25}))
    start, end, mean = jnp.array(0.0), jnp.array(1.0), jnp.array(3.0)
    params, _ = strategy.mix(start, end, mean, strategy.init(start))
    assert params == 1.5  # a quarter of the way from 1 to 3


def test_easgd_is_told_the_number_of_workers():
    config = Config(strategy="easgd", num_workers=8)
    assert build_strategy(config).num_workers == 8


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"strategy": "adam"},
            "strategy must be one of sync_sgd, local_sgd, .*, got 'adam'",
        ),
        (
            {"strategy": "powersgd"},
            "got 'powersgd'; use sync_sgd with the reduction low_rank",
        ),
        (
            {"strategy": "local_sgd", "strategy_args": {"pullback": 0.6}},
            r"strategy_args must fit local_sgd\(\), got {'pullback': 0.6}; pass",
        ),
        (
            {"strategy": "easgd", "strategy_args": {}},
            r"strategy_args must fit easgd\(moving_rate\), got {}; pass strategy_args",
        ),
        (
            {"strategy": "easgd", "strategy_args": {"num_workers": 8}},
            r"strategy_args must fit easgd\(moving_rate\), got {'num_workers': 8}",
        ),
        (
            {"strategy": "cocod_sgd", "rated_velocity": True},
            "rated_velocity must be False under cocod_sgd, which keeps no velocity",
        ),
        ({"strategy_args": {"pullback": 2.0}}, r"pullback must be in \[0, 1\], got 2"),
    ],
)
def test_arguments_that_do_not_fit_the_strategy_are_errors(options, message):
    with pytest.raises(ValueError, match=message):
        build_strategy(Config(**options))


def test_flags_of_a_reduction_are_numbers_in_a_config():
    def reduction(stochastic):
        args = {"stochastic": stochastic}
        return build_reduction(Config(reduction="int8", reduction_args=args))

    assert reduction(0).draw is None
    assert reduction(1).draw is not None
    message = r"reduction_args\['stochastic'\] must be 0 or 1, got 2"
    with pytest.raises(ValueError, match=message):
        reduction(2)


def test_the_optimizer_is_nesterov_momentum_with_weight_decay():
    # g ← g + λ x;  v ← μ v + g;  x ← x − γ (g + μ v)
    config = Config(momentum=0.9, weight_decay=0.01)
    optimizer = build_optimizer(config, lambda step: 0.1)
    x, v = 2.0, 0.0
    state = optimizer.init(jnp.array(x))
    for gradient in (1.0, -3.0, 0.5):
        updates, state = optimizer.update(jnp.array(gradient), state, jnp.array(x))
        decayed = gradient + 0.01 * x
        v = 0.9 * v + decayed
        expected = -0.1 * (decayed + 0.9 * v)
        np.testing.assert_allclose(updates, expected, rtol=1e-12)
        x += expected


def test_norms_and_biases_are_decayed_only_if_asked_for():
    params = {"kernel": jnp.ones((2, 2)), "bias": jnp.ones(2)}
    for decay_vectors in (True, False):
        config = Config(momentum=0.0, weight_decay=0.5, decay_vectors=decay_vectors)
        optimizer = build_optimizer(config, lambda step: 1.0)
        zeros = jax.tree.map(jnp.zeros_like, params)
        updates, _ = optimizer.update(zeros, optimizer.init(params), params)
        np.testing.assert_array_equal(updates["kernel"], -0.5)
        np.testing.assert_array_equal(updates["bias"], -0.5 * decay_vectors)


def test_the_learning_rate_warms_up_and_decays():
    config = Config(
        learning_rate=0.1,
        num_workers=16,
        batch_size=128,
        scale_learning_rate=True,
        warmup_epochs=5,
        decay_epochs=(150, 250),
    )
    schedule = build_schedule(config, num_examples=50_000)
    epochs = np.array([0, 2.5, 5, 149.9, 150.1, 249.9, 250.1, 299])
    steps = epochs * 50_000 / (16 * 128)
    expected = [0.1, 0.85, 1.6, 1.6, 0.16, 0.16, 0.016, 0.016]
    got = [float(schedule(step)) for step in steps]
    np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_without_scaling_the_rate_is_the_base_rate():
    schedule = build_schedule(Config(learning_rate=0.3, warmup_epochs=2), 1000)
    assert [float(schedule(step)) for step in (0, 5, 10**6)] == [np.float32(0.3)] * 3


def test_a_velocity_may_be_kept_divided_by_the_rate():
    start, end, mean = jnp.array(0.0), jnp.array(1.0), jnp.array(3.0)
    for rated, expected in ((False, 3.0), (True, 6.0)):
        config = Config(rated_velocity=rated)
        strategy = build_strategy(config, lambda step: 0.5)
        _, state = strategy.mix(start, end, mean, strategy.init(start))
        assert state.velocity == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"model": "resnet8"},
            "model must be one of mlp for digits, which has vectors",
        ),
        ({"augment": True}, "augment must be False for digits, which has vectors"),
        ({"model": "vgg"}, "one of mlp, resnet18, resnet8, transformer, got 'vgg'"),
    ],
)
def test_networks_and_options_have_to_fit_the_data(options, message):
    with pytest.raises(ValueError, match=message):
        build_task(Config(**options), load_dataset("digits"))


def test_the_mlp_takes_images_as_vectors():
    dataset = outline_dataset("cifar10")
    task = build_task(Config(dataset="cifar10", width=8), dataset)
    params, _ = task.init(jax.random.key(0))
    assert params["Dense_0"]["kernel"].shape == (32 * 32 * 3, 8)
    image = jnp.arange(32 * 32 * 3).astype(jnp.uint8).reshape(1, 32, 32, 3)
    pixels = np.asarray(normalise(image)).reshape(-1)
    first, last = (params[f"Dense_{i}"]["kernel"] for i in range(2))
    expected = np.maximum(pixels @ first, 0) @ last  # biases are zero
    np.testing.assert_allclose(task.predict(params, {}, image)[0], expected, atol=1e-4)


def test_the_task_has_the_configs_width_and_dropout():
    dataset = load_dataset("digits")
    task = build_task(Config(width=8, dropout=0.5), dataset)
    params, model_state = task.init(jax.random.key(0))
    chex.assert_trees_all_equal_shapes_and_dtypes(
        params,
        {
            "Dense_0": {"kernel": np.zeros((64, 8), "f4"), "bias": np.zeros(8, "f4")},
            "Dense_1": {"kernel": np.zeros((8, 10), "f4"), "bias": np.zeros(10, "f4")},
        },
    )
    batch = {
        "inputs": jnp.asarray(dataset.test_inputs),
        "labels": jnp.asarray(dataset.test_labels),
    }
    losses = [
        task.loss(params, model_state, batch, jax.random.key(i))[0] for i in range(2)
    ]
    assert losses[0] != losses[1]


@pytest.mark.parametrize(
    ("num_workers", "mapping", "places"),
    [
        (1, None, 1),
        (16, None, 16),
        (17, None, None),
        (24, None, 12),
        (4, "vmap", None),
        (4, "pmap", 4),
        (4, "shard_map", 4),
        (64, "shard_map", 16),
    ],
)
def test_workers_share_the_16_devices_evenly(num_workers, mapping, places):
    mesh = build_mesh(Config(num_workers=num_workers, mapping=mapping))
    assert (mesh.size if mesh else None) == places


def test_a_mapping_that_needs_more_devices_is_an_error():
    with pytest.raises(ValueError, match="got 17 workers and 16 devices"):
        build_mesh(Config(num_workers=17, mapping="pmap"))


def test_the_batches_are_of_the_seeds_partition():
    config = Config(num_workers=2, batch_size=720, sync_period=1, seed=3)
    dataset = load_dataset("digits")
    labels = build(config).batches(0)["labels"]  # one pass over each shard of 720
    for shard, got in zip(partition_iid(1440, 2, seed=3), labels, strict=True):
        expected = np.sort(dataset.train_labels[shard])
        np.testing.assert_array_equal(np.sort(got.flatten()), expected)


def test_the_seed_decides_the_first_model():
    def first_model(seed):
        return build(Config(width=8, seed=seed)).init().params

    chex.assert_trees_all_equal(first_model(0), first_model(0))
    with pytest.raises(AssertionError):
        chex.assert_trees_all_equal(first_model(0), first_model(1))
