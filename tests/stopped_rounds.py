"""Rounds that go on from where they stopped, in as many processes as there are.

    python -m tests.stopped_rounds DIRECTORY NUMBER [DIRECTORY NUMBER]

For each directory: goes on from the checkpoint in it, or begins; stops after so many
rounds, and leaves a checkpoint of all states.
"""

import functools
import pathlib
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax

from olsgd_jax import (
    exact,
    init_state,
    int4,
    int8,
    low_rank,
    make_round,
    random_mask,
    worker_mesh,
)
from olsgd_jax.strategies import STRATEGIES
from olsgd_jax.training import Checkpoints, Config, build_strategy, join, meet

TAU, M, ROUNDS = 2, 4, 3
# Somebody is away in every round, so that workers are behind wherever it stops.
PRESENT = np.array([[1, 1, 0, 0], [0, 1, 0, 0], [1, 0, 1, 1]], bool)
BATCHES = np.random.default_rng(0).normal(size=(ROUNDS, M, TAU, 4, 3))
OPTIMIZER = optax.sgd(0.1, momentum=0.9)
ALL, DELAYED = tuple(STRATEGIES), ("cocod_sgd", "overlap_local_sgd")
# Of each: the strategies, devices of a worker (None: all on one), what make_round gets.
WAYS = {
    "vmap": (ALL, None, {}),
    "pmap": (ALL, {}, {"mapping": "pmap"}),
    "shard_map": (ALL, {}, {"driver": "fused"}),
    "vmap, streamed": (DELAYED, None, {"stream": True}),
    "pmap, streamed": (DELAYED, {}, {"stream": True, "mapping": "pmap"}),
    "shard_map, streamed": (DELAYED, {}, {"stream": True}),
    "vmap, host": (DELAYED, None, {"driver": "host"}),
    "pmap, host": (DELAYED, {}, {"driver": "host", "mapping": "pmap"}),
    "shard_map, host": (DELAYED, {}, {"driver": "host"}),
    "fsdp": (("overlap_local_sgd",), {"fsdp": 2}, {}),
    "compressed": (("sync_sgd", "local_sgd"), {}, {"reduction": int4()}),
    "stochastic": (("sync_sgd", "cocod_sgd"), {}, {"reduction": int4(stochastic=True)}),
    "random mask": (("cocod_sgd", "local_sgd"), {}, {"reduction": random_mask(0.5)}),
    "compressed, streamed": (DELAYED, {}, {"stream": True, "reduction": int4()}),
    "compressed, host": (DELAYED, {}, {"driver": "host", "reduction": int8()}),
    "low rank": (("sync_sgd", "local_sgd"), {}, {"reduction": low_rank(2)}),
    "low rank, streamed": (DELAYED, {}, {"stream": True, "reduction": low_rank(2)}),
    "low rank, host": (DELAYED, {}, {"driver": "host", "reduction": low_rank(2)}),
}
OF_PROCESSES = (
    "shard_map", "shard_map, streamed", "shard_map, host",
    "compressed", "compressed, streamed", "compressed, host", "low rank, host",
)  # fmt: skip


def build_one(name, num_workers):
    """A strategy by its name."""
    return build_strategy(Config(strategy=name, num_workers=num_workers))


def loss(params, model_state, batch, key):
    half = jnp.sum(params["half"].astype(jnp.float64) ** 3)
    noisy = params["w"] + jax.random.uniform(key) - batch
    return jnp.sum(noisy**2) + half, {"seen": model_state["seen"] + 1}


@functools.cache
def states_and_rounds(ways):
    """The first states, and the compiled rounds, by way and strategy."""
    model_state, states, rounds = {"seen": jnp.zeros(())}, {}, {}
    for way in ways:
        names, devices, options = WAYS[way]
        mesh = None if devices is None else worker_mesh(M, **devices)
        # XLA's CPU compiler aborts on a mean of bfloat16 beside an axis that it shares.
        half = jnp.linspace(0, 1, 5, dtype=jnp.float32 if devices else jnp.bfloat16)
        params = {"w": jnp.ones((4, 3)), "half": half}
        for name in names:
            strategy = build_one(name, M)
            key = f"{way}, {name}"
            states[key] = init_state(
                params,
                OPTIMIZER,
                strategy,
                mesh=mesh,
                num_workers=M,
                model_state=model_state,
                reduction=options.get("reduction", exact()),
            )
            rounds[key] = make_round(
                loss, OPTIMIZER, strategy, sync_period=TAU, mesh=mesh, **options
            )
    return states, rounds


def go_on(directory, number, ways):
    """Runs to the end of some round, from wherever the checkpoint is."""
    first, rounds = states_and_rounds(ways)
    with Checkpoints(directory, keep=1) as checkpoints:
        found = checkpoints.restore(first)
        begin = found.number if found else 0
        # Copied: a round donates its state.
        states = found.tree if found else jax.tree.map(jnp.copy, first)
        for r in range(begin, number):
            for key, overlap_round in rounds.items():
                result = overlap_round(states[key], BATCHES[r], PRESENT[r])
                states[key], _ = jax.block_until_ready(result)
        checkpoints.save(number, states)


if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_enable_x64", True)
    process = join()
    jax.config.update("jax_num_cpu_devices", M // process.num_processes)
    for out, last in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
        go_on(pathlib.Path(out), int(last), OF_PROCESSES)
    meet()
