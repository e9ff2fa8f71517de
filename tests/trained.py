"""Trains in float64, in as many processes as its environment says; process 0 writes.

python tests/trained.py DIRECTORY CPU_DEVICES

A file of records for each strategy.
"""

import pathlib
import sys

import jax

from olsgd_jax.training import Config, join, meet, train, write_records
from olsgd_jax.training.components import build
from tests.float64 import in_float64

out, cpu_devices = pathlib.Path(sys.argv[1]), int(sys.argv[2])
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_enable_x64", True)
process = join()
jax.config.update("jax_num_cpu_devices", cpu_devices)

for strategy in ("overlap_local_sgd", "local_sgd"):
    config = Config(
        strategy=strategy, width=4, batch_size=4, num_rounds=20, evaluate_every=5
    )
    components = in_float64(config, build(config))
    write_records(out / f"{strategy}.jsonl", config, train(config, components))
meet()
