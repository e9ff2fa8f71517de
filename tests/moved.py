"""Goes on with a run in float64, in as many processes as its environment says.

python tests/moved.py DIRECTORY NUM_ROUNDS NUM_WORKERS CPU_DEVICES
"""

import pathlib
import sys

import jax

from olsgd_jax.training import Checkpoints, Config, join, meet, train, write_records
from olsgd_jax.training.components import build
from tests.float64 import in_float64


def go_on(out, num_rounds, num_workers, **options):
    """Trains from wherever the run in a directory is."""
    config = Config(
        width=4,
        batch_size=4,
        num_rounds=num_rounds,
        num_workers=num_workers,
        evaluate_every=1,
        **options,
    )
    components = in_float64(config, build(config))
    with Checkpoints(out / "checkpoints") as checkpoints:
        records = train(config, components, checkpoints=checkpoints)
        write_records(out / "run.jsonl", config, records)


if __name__ == "__main__":
    num_rounds, num_workers, cpu_devices = map(int, sys.argv[2:])
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_enable_x64", True)
    join()
    jax.config.update("jax_num_cpu_devices", cpu_devices)
    go_on(pathlib.Path(sys.argv[1]), num_rounds, num_workers)
    meet()
