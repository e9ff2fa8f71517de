"""Runs rounds on six workers in some processes; process 0 prints where they end.

    python tests/processes.py PORT PROCESS NUM_PROCESSES

One line for every driver: its name, and the workers' parameters. One line of the
examples that process 0 read for its own workers' batches.
"""

import sys

import jax

port, process, num_processes = (int(x) for x in sys.argv[1:])
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_num_cpu_devices", 6 // num_processes)
if num_processes > 1:
    jax.distributed.initialize(f"127.0.0.1:{port}", num_processes, process)

import jax.numpy as jnp  # noqa: E402  the backend is set up first
import numpy as np  # noqa: E402
import optax  # noqa: E402
from jax.experimental import multihost_utils  # noqa: E402

from olsgd_jax import init_state, make_round, overlap_local_sgd, plain_loss, worker_mesh  # noqa: E402
from olsgd_jax.drivers.forms import buckets  # noqa: E402
from olsgd_jax.training import make_batches  # noqa: E402

buckets.LEAST_BYTES = 256  # so that 106 numbers make three
mesh = worker_mesh(6)
optimizer, strategy = optax.adam(0.1), overlap_local_sgd(0.6, 0.7)


@plain_loss
def loss(params, centre):
    return sum(jnp.sum((x - centre) ** 2) for x in params)


# Several arrays of uneven sizes: where an element lies decides how it is summed.
params = [jnp.linspace(0, 1, size) for size in (5, 37, 64)]
centres = np.random.default_rng(0).normal(size=(3, 6, 2))
presence = (None, np.arange(6) % 4 < 2, None)  # workers 2 and 3 miss a round
for driver in ("host", "fused"):
    state = init_state(params, optimizer, strategy, mesh=mesh)
    overlap_round = make_round(
        loss, optimizer, strategy, sync_period=2, mesh=mesh, driver=driver
    )
    for batches, present in zip(centres, presence, strict=True):
        state, _ = overlap_round(state, batches, present)
    everywhere = multihost_utils.process_allgather(state.params, tiled=True)
    if process == 0:
        print(driver, *(float(x) for leaf in everywhere for x in np.ravel(leaf)))


class Examples:
    """The numbers 0 to 17, which remember what was read of them."""

    def __init__(self):
        self.read = []

    def __len__(self):
        return 18

    def __getitem__(self, places):
        self.read.extend(places.tolist())
        return places


examples, shards = Examples(), list(np.arange(18).reshape(6, 3))
batches = make_batches(
    examples, shards, sync_period=1, batch_size=3, seed=0, mesh=mesh
)(0)
for part in batches.addressable_shards:
    np.testing.assert_array_equal(
        np.sort(part.data.ravel()), shards[part.index[0].start]
    )
if process == 0:
    print("read", *examples.read)
