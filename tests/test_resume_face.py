"""The optax face: a loop that stops after any local step goes on to the same bits."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax.training.train_state import TrainState

from olsgd_jax import (
    distribute,
    int8,
    low_rank,
    on_workers,
    random_mask,
    to_workers,
)
from olsgd_jax.strategies import STRATEGIES
from olsgd_jax.training import Checkpoints
from tests.helpers import by_name, mesh_of
from tests.stopped_rounds import build_one

TAU, M, NUM_STEPS = 3, 2, 6
PARAMS = {
    "w": jax.random.normal(jax.random.key(0), (4, 3)),
    "half": jnp.linspace(0, 1, 5, dtype=jnp.bfloat16),
}
BATCHES = jax.random.normal(jax.random.key(1), (NUM_STEPS, M, 4, 3))


class State(TrainState):
    """What a user's loop carries; `step` and `scale` begin as Python's numbers."""

    key: jax.Array
    scale: float


@functools.cache
def transformations():
    built = {name: build_one(name, M) for name in STRATEGIES}
    optimizer = optax.sgd(0.1, momentum=0.9)
    plain = {name: distribute(optimizer, x, TAU) for name, x in built.items()}
    reductions = {
        ("local_sgd", "int8"): int8(),
        ("sync_sgd", "stochastic"): int8(stochastic=True),
        ("overlap_local_sgd", "stochastic"): int8(stochastic=True),
        ("cocod_sgd", "random mask"): random_mask(0.5),
        ("local_sgd", "low rank"): low_rank(2),
        ("overlap_local_sgd", "low rank"): low_rank(2),
    }
    reduced = {
        f"{name}, {which}": distribute(optimizer, built[name], TAU, reduction=x)
        for (name, which), x in reductions.items()
    }
    return plain | reduced


def train_step(state, batch):
    key, own = jax.random.split(state.key)

    def loss(params):
        noise = jax.random.uniform(own)
        # The type of this product is that of `half` only while `scale` is weak.
        half = (params["half"] * state.scale).astype(jnp.float64)
        return jnp.sum((params["w"] + noise - batch) ** 2) + jnp.sum(half**3)

    return state.apply_gradients(grads=jax.grad(loss)(state.params)).replace(key=key)


@pytest.fixture(autouse=True)
def promotion_as_users_have_it():
    with jax.numpy_dtype_promotion("standard"):
        yield


def first_states(mapping):
    key = jax.random.key(2)
    states = {
        name: State.create(apply_fn=None, params=PARAMS, tx=tx, key=key, scale=1 / 3)
        for name, tx in transformations().items()
    }
    return to_workers(states, M, mesh_of(mapping, M))


def bits(states):
    """The bytes of all arrays by the names of the states, with their types."""
    return {
        name: [
            (path, x.dtype, x.weak_type, np.asarray(x).tobytes())
            for path, x in by_name(state).items()
        ]
        for name, state in states.items()
    }


@pytest.mark.parametrize("mapping", ["vmap", "pmap", "shard_map"])
def test_a_loop_stops_after_any_step_and_goes_on_to_the_same_bits(mapping, tmp_path):
    step_of_one = on_workers(train_step, mesh_of(mapping, M), mapping)

    @functools.partial(jax.jit, donate_argnums=0)  # one compilation for all
    def step(states, batch):
        return {name: step_of_one(state, batch) for name, state in states.items()}

    states, expected = first_states(mapping), []
    like = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), states
    )
    for k, batch in enumerate(BATCHES):
        with Checkpoints(tmp_path / str(k)) as checkpoints:
            checkpoints.save(k, states)
        expected.append(bits(states))
        states = step(states, batch)
    expected.append(bits(states))

    for k in range(NUM_STEPS):
        with Checkpoints(tmp_path / str(k)) as checkpoints:
            states = checkpoints.restore(like).tree
        for number in range(k, NUM_STEPS):
            found = bits(states)
            differing = [x for x in found if found[x] != expected[number][x]]
            assert not differing, f"stopped after step {k}, at step {number}"
            states = step(states, BATCHES[number])
        assert bits(states) == expected[-1]
