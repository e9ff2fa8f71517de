"""Gradients with channels-last convolutions: the same numbers, and nothing else."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import lax

from olsgd_jax import init_state, make_round, overlap_local_sgd, worker_mesh
from olsgd_jax.drivers.convolutions import channels_last_gradient
from olsgd_jax.training import ResNet, classification

KEYS = jax.random.split(jax.random.key(0))
LAYOUTS = {
    "channels-last": ((3, 6, 7, 4), (3, 2, 4, 5), ("NHWC", "HWIO", "NHWC")),
    "channels-first": ((3, 4, 6, 7), (5, 4, 3, 2), ("NCHW", "OIHW", "NCHW")),
    "mixed": ((6, 3, 4, 7), (3, 5, 2, 4), ("HNCW", "HOWI", "WCNH")),
    "one dimension": ((3, 6, 4), (3, 4, 5), ("NHC", "HIO", "NHC")),
    "three dimensions": ((2, 4, 5, 4, 3), (2, 2, 2, 3, 5), ("NDHWC", "DHWIO", "NDHWC")),
}
OPTIONS = {
    "strides": {"window_strides": 2},
    "dilated images": {"lhs_dilation": 2},
    "dilated kernel": {"rhs_dilation": 2},
}


def convolution(dimension_numbers, rank, **options):
    options = {"window_strides": 1, "padding": (1, 1), **options}
    options = {name: (value,) * rank for name, value in options.items()}

    def convolve(images, kernel):
        result = lax.conv_general_dilated(
            images, kernel, dimension_numbers=dimension_numbers, **options
        )
        return jnp.sin(result).sum()

    return convolve


def assert_same(loss, *args):
    expected = jax.jit(jax.value_and_grad(loss))(*args)
    got = jax.jit(channels_last_gradient(loss))(*args)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, 1e-12), got, expected)


@pytest.mark.parametrize(
    ("layout", "options"),
    [(layout, "plain") for layout in LAYOUTS] + [("mixed", name) for name in OPTIONS],
)
def test_gradients_are_those_of_jax(layout, options):
    shape, kernel_shape, numbers = LAYOUTS[layout]
    loss = convolution(numbers, len(shape) - 2, **OPTIONS.get(options, {}))
    images = jax.random.normal(KEYS[0], shape)
    kernel = jax.random.normal(KEYS[1], kernel_shape)
    assert_same(loss, images, kernel)
    assert_same(lambda kernel, images: loss(images, kernel), kernel, images)


def test_gradients_of_grouped_convolutions_are_those_of_jax():
    images = jax.random.normal(KEYS[0], (2, 5, 5, 6))
    kernel = jax.random.normal(KEYS[1], (3, 3, 2, 9))

    def loss(kernel):
        result = lax.conv_general_dilated(
            images, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=3,
        )  # fmt: skip
        return (result**2).sum()

    assert_same(loss, kernel)


def square(kernel, images):
    result = lax.conv_general_dilated(
        images, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    return jnp.tanh(result)


def looped(kernel, images):
    def body(x, _):
        return square(kernel, x), None

    return lax.scan(body, images, length=3)[0].sum()


NESTED = {
    "jit": lambda k, x: jax.jit(square)(k, x).sum(),
    "checkpoint": lambda k, x: jax.checkpoint(square)(k, x).sum(),
    "scan": looped,
    "checkpointed scan": jax.checkpoint(looped),
    "cond": lambda k, x: lax.cond(x.sum() > 0, square, lambda k, x: x, k, x).sum(),
    "vmap": lambda k, x: jax.vmap(square, (None, 0))(k, x[:, None]).sum(),
}


def layouts(function, *args) -> set[str]:
    """Finds the layouts of all convolutions in a function's program."""
    text = jax.jit(function).lower(*args).as_text()
    parts = text.split("dim_numbers = ")[1:]
    return {part.split(",  window")[0].split(", window")[0] for part in parts}


CHANNELS_LAST = {"[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]"}


@pytest.mark.parametrize("name", NESTED)
def test_convolutions_inside_of_other_programs_are_rewritten(name):
    kernel = jax.random.normal(KEYS[0], (3, 3, 2, 2))
    images = jax.random.normal(KEYS[1], (3, 5, 5, 2))
    assert_same(NESTED[name], kernel, images)
    assert layouts(jax.value_and_grad(NESTED[name]), kernel, images) > CHANNELS_LAST
    new = channels_last_gradient(NESTED[name])
    assert layouts(new, kernel, images) == CHANNELS_LAST


@pytest.mark.parametrize("num_devices", [None, 2])
def test_rounds_on_cpus_convolve_channels_last(num_devices):
    mesh = worker_mesh(num_devices) if num_devices else None
    net = ResNet(width=2, blocks=(1, 1), entrance_stride=2)
    task = classification(net, jax.ShapeDtypeStruct((1, 8, 8, 3), "f4"))
    optimizer, strategy = optax.sgd(0.1), overlap_local_sgd(pullback=0.6)
    overlap_round = make_round(task.loss, optimizer, strategy, sync_period=2, mesh=mesh)
    params, model_state = task.init(jax.random.key(0))
    state = init_state(
        params, optimizer, strategy, model_state=model_state, num_workers=2, mesh=mesh
    )
    inputs, labels = jnp.zeros((2, 2, 4, 8, 8, 3), "f4"), jnp.zeros((2, 2, 4), "i4")
    text = overlap_round.lower(state, {"inputs": inputs, "labels": labels}).as_text()
    assert "[0, 1, i, o]" in text
    assert "[0, 1, o, i]" not in text


def test_names_of_layers_stay_in_the_program():
    def loss(kernel, images):
        with jax.named_scope("a_layer"):
            return square(kernel, images).sum()

    gradient = jax.jit(channels_last_gradient(loss))
    lowered = gradient.lower(jnp.ones((3, 3, 2, 2)), jnp.ones((3, 5, 5, 2)))
    name = "transpose(jvp(a_layer))/conv_general_dilated"
    assert name in lowered.as_text(debug_info=True)
