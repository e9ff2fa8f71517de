"""Runs three rounds on four workers in two processes; process 0 prints their losses.

    python tests/two_processes.py PORT PROCESS

With process 0 of 1 (`PORT 0 1`) all four workers are in one process.
"""

import sys

import jax

port, process, num_processes = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_num_cpu_devices", 4 // num_processes)
if num_processes > 1:
    jax.distributed.initialize(f"127.0.0.1:{port}", num_processes, process)

import jax.numpy as jnp  # noqa: E402  the backend is set up first
import numpy as np  # noqa: E402
import optax  # noqa: E402
from jax.experimental import multihost_utils  # noqa: E402

from olsgd_jax import (  # noqa: E402
    init_state,
    make_round,
    overlap_local_sgd,
    plain_loss,
    worker_mesh,
)

mesh = worker_mesh(4)
optimizer, strategy = optax.adam(0.1), overlap_local_sgd(0.6, 0.7)
loss = plain_loss(lambda x, centre: jnp.sum((x - centre) ** 2))
state = init_state(jnp.zeros(3), optimizer, strategy, mesh=mesh)
overlap_round = make_round(loss, optimizer, strategy, sync_period=2, mesh=mesh)
centres = np.random.default_rng(0).normal(size=(3, 4, 2, 3))
for batches in centres:
    state, _ = overlap_round(state, batches)
params = multihost_utils.process_allgather(state.params, tiled=True)
if process == 0:
    print("params", *np.ravel(params))
