"""Whether a run can fit into memory, before anything of it is put there.

What is counted is the least that a process needs: the batches of one round, and of
every worker of its own the parameters, their gradient and the optimizer's momentum.
"""

import math
import os

import jax

from olsgd_jax.training.config import Config
from olsgd_jax.training.data.dataset import Dataset
from olsgd_jax.training.tasks import Task

_COPIES = 3  # parameters, gradient, momentum


def check_memory(config: Config, dataset: Dataset, task: Task) -> None:
    """Raises if batches or models of a run cannot fit into memory.

    >>> from olsgd_jax.training import Config, load_dataset
    >>> from olsgd_jax.training.components import build_task
    >>> config, digits = Config(sync_period=10**9), load_dataset("digits")
    >>> check_memory(config, digits, build_task(config, digits))
    Traceback (most recent call last):
    ValueError: sync_period, batch_size and num_workers must let ... use smaller ones
    """
    own = config.num_workers / jax.process_count()
    example = dataset.train_inputs[:1].nbytes + dataset.train_labels[:1].nbytes
    batches = own * config.sync_period * config.batch_size * example
    host = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if batches > host:
        raise ValueError(
            "sync_period, batch_size and num_workers must let the batches of a round "
            f"fit into memory, got {_words(batches)} of them and {_words(host)}; use "
            "smaller ones"
        )
    params, _ = jax.eval_shape(task.init, jax.random.key(0))
    sizes = [x.dtype.itemsize * math.prod(x.shape) for x in jax.tree.leaves(params)]
    models, devices = own * _COPIES * sum(sizes), _device_memory() or host
    if models > devices:
        raise ValueError(
            "width and num_workers must let the models of all workers fit into memory, "
            f"got {_words(models)} of models, gradients and momentum and "
            f"{_words(devices)}; use smaller ones"
        )


def _device_memory() -> int | None:
    """Counts the bytes of this process' devices; None where they are the host's."""
    stats = [device.memory_stats() or {} for device in jax.local_devices()]
    return sum(x.get("bytes_limit", 0) for x in stats) or None


def _words(num_bytes: float) -> str:
    return f"{num_bytes / 1e9:,.3g} GB"
