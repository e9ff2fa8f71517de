"""Trains in float64, in as many processes as its environment says; process 0 writes.

python tests/trained.py DIRECTORY CPU_DEVICES

A file of records for each strategy.
"""

import pathlib
import sys

import jax
import jax.numpy as jnp

from olsgd_jax import (
    MLP,
    Config,
    classification,
    init_state,
    join,
    meet,
    train,
    write_records,
)
from olsgd_jax.build import build

out, cpu_devices = pathlib.Path(sys.argv[1]), int(sys.argv[2])
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_enable_x64", True)
process = join()
jax.config.update("jax_num_cpu_devices", cpu_devices)


def in_float64(config, parts):
    """The same run with models, inputs and losses in float64."""
    shape = jax.ShapeDtypeStruct((1, 64), jnp.float64)
    task = classification(MLP(4, 10), shape, prepare=lambda x: x.astype(jnp.float64))

    def init():
        params, _ = task.init(jax.random.key(0))
        params = jax.tree.map(lambda x: x.astype(jnp.float64), params)
        return init_state(
            params, parts.optimizer, parts.strategy, mesh=parts.mesh, num_workers=4
        )

    return parts._replace(task=task, init=init)


for strategy in ("overlap_local_sgd", "local_sgd"):
    config = Config(
        strategy=strategy, width=4, batch_size=4, num_rounds=20, evaluate_every=5
    )
    parts = in_float64(config, build(config))
    write_records(out / f"{strategy}.jsonl", config, train(config, parts))
meet()
