"""Gradients at the whole model, of parameters that lie in parts."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from olsgd_jax import init_state, local_sgd, make_round, plain_loss, worker_mesh
from olsgd_jax.drivers.gathered import gathered_gradient
from olsgd_jax.drivers.platforms import Platform
from olsgd_jax.round.worker_round import tree_form
from olsgd_jax.workers.mesh import FSDP
from olsgd_jax.workers.sharding import batch_shardings

OPTIMIZER = optax.sgd(0.1, momentum=0.9)
EXAMPLES = 24  # of a batch, as of nothing else


@plain_loss
def loss(params, inputs):
    hidden = jnp.tanh(inputs @ params["in"] + params["bias"])
    return jnp.mean(jnp.tanh(hidden @ params["between"]) @ params["out"])


@pytest.fixture
def fsdp_mesh():
    return worker_mesh(2, fsdp=4)


def arguments(mesh):
    shapes = {"in": (8, 64), "bias": (64,), "between": (64, 64), "out": (64,)}
    keys = jax.random.split(jax.random.key(0), len(shapes))
    params = {
        name: jax.random.normal(key, shape)
        for key, (name, shape) in zip(keys, shapes.items(), strict=True)
    }
    state = init_state(params, OPTIMIZER, local_sgd(), mesh=mesh)
    batches = jax.random.normal(jax.random.key(1), (2, 3, EXAMPLES, 8))
    return state, jax.device_put(batches, batch_shardings(batches, mesh))


def round_with(gradient, mesh):
    return make_round(
        loss,
        OPTIMIZER,
        local_sgd(),
        sync_period=3,
        mesh=mesh,
        platform=Platform(tree_form, {}, gradient),
    )


def test_rounds_are_the_same_and_their_state_stays_in_parts(fsdp_mesh):
    ends = []
    for gradient in (gathered_gradient(fsdp_mesh), jax.value_and_grad):
        state, batches = arguments(fsdp_mesh)
        ends.append(round_with(gradient, fsdp_mesh)(state, batches)[0])
    for ours, plain in zip(*map(jax.tree.leaves, ends), strict=True):
        assert ours.sharding == plain.sharding
        if jnp.issubdtype(ours.dtype, jnp.floating):
            np.testing.assert_allclose(ours, plain, rtol=1e-12, atol=1e-15)


def gathers_examples(gradient, mesh):
    """Whether devices of a worker send each other what they computed of examples."""
    compiled = round_with(gradient, mesh).lower(*arguments(mesh)).compile()
    collectives = re.findall(
        r"= (.+?) all-(?:gather|reduce|to-all)\(", compiled.as_text()
    )
    assert collectives
    return any(re.search(rf"\b{EXAMPLES}\b", shape) for shape in collectives)


def test_devices_share_the_examples_and_nothing_else(fsdp_mesh):
    assert not gathers_examples(gathered_gradient(fsdp_mesh), fsdp_mesh)
    assert gathers_examples(jax.value_and_grad, fsdp_mesh)  # left to the compiler


def test_gradients_are_cut_as_the_parameters_are(fsdp_mesh):
    gradient = gathered_gradient(fsdp_mesh)(lambda w, x: jnp.sum(jnp.sin(x @ w)))
    cut = NamedSharding(fsdp_mesh, PartitionSpec(FSDP))
    w = jax.device_put(jnp.ones((8, 3)), cut)
    with jax.set_mesh(fsdp_mesh):
        value, grads = jax.jit(gradient)(w, jnp.ones((16, 8)))
    np.testing.assert_allclose(value, 48 * np.sin(8), rtol=1e-12)
    np.testing.assert_allclose(grads, np.full((8, 3), 16 * np.cos(8)), rtol=1e-12)
    assert grads.sharding.is_equivalent_to(cut, 2)
