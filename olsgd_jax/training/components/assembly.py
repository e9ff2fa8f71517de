"""All components of a training run, built from its config."""

import os
from collections.abc import Callable
from typing import NamedTuple

import jax
import optax
from jax.sharding import Mesh

from olsgd_jax._checks import check_choice
from olsgd_jax.reductions.base import Reduction
from olsgd_jax.round.consensus import check_kept
from olsgd_jax.round.local_steps import WorkerState
from olsgd_jax.round.state import init_state
from olsgd_jax.strategies.base import Strategy
from olsgd_jax.training.components.arguments import check_left_out
from olsgd_jax.training.components.optimizer import build_optimizer
from olsgd_jax.training.components.reduction import build_reduction
from olsgd_jax.training.components.schedule import build_schedule
from olsgd_jax.training.components.strategy import build_strategy
from olsgd_jax.training.config import Config
from olsgd_jax.training.data.batches import make_batches
from olsgd_jax.training.data.dataset import Dataset
from olsgd_jax.training.data.images import crop_and_flip, normalise
from olsgd_jax.training.data.named_datasets import load_dataset
from olsgd_jax.training.data.partition import make_partition
from olsgd_jax.training.data.windows import in_windows
from olsgd_jax.training.models import MODELS, make_model
from olsgd_jax.training.tasks import Task, classification
from olsgd_jax.types import Batch, Shards
from olsgd_jax.workers.mesh import process_devices, share_workers, worker_mesh


class Components(NamedTuple):
    """What a config names, built.

    >>> from olsgd_jax.training import Config, build
    >>> components = build(Config(num_workers=2))
    >>> [len(shard) for shard in components.shards], components.dataset.num_classes
    ([720, 720], 10)
    """

    dataset: Dataset  # a text is in windows
    shards: Shards  # indices of every worker's examples
    task: Task
    schedule: optax.Schedule  # local steps so far -> learning rate
    optimizer: optax.GradientTransformation
    strategy: Strategy
    reduction: Reduction
    mesh: Mesh | None  # None: workers are lanes of one device
    batches: Callable[[int], Batch]  # round, from 0 -> its batches
    init: Callable[[], WorkerState]  # the state before the first round


def build(config: Config, dataset: Dataset | None = None) -> Components:
    """Builds everything that a config names, without training.

    Args:
      config: options of the run.
      dataset: what to learn from; loaded by default. A text is one row of tokens.

    >>> from olsgd_jax.training import Config, build
    >>> components = build(Config(strategy="local_sgd"))
    >>> components.strategy.mean_of, components.batches(0)["inputs"].shape
    ('end', (4, 4, 32, 64))
    """
    if dataset is None:
        dataset = load_dataset(config.dataset, config.data_dir)
    if dataset.kind == "text":
        dataset = in_windows(dataset, config.context)
    shards = make_partition(
        config.partition,
        dataset.train_labels,
        config.num_workers,
        config.seed,
        config.concentration,
    )
    task = build_task(config, dataset)
    _check_memory(config, dataset, task)
    schedule = build_schedule(config, dataset.epoch_size(shards))
    strategy = build_strategy(config, schedule)
    optimizer = build_optimizer(config, schedule)
    reduction = build_reduction(config)
    mesh = build_mesh(config)
    batches = make_batches(
        {"inputs": dataset.train_inputs, "labels": dataset.train_labels},
        shards,
        sync_period=config.sync_period,
        batch_size=config.batch_size,
        seed=config.seed,
        mesh=mesh,
        reshuffle=config.reshuffle,
        long_first_round=config.long_first_round,
    )

    def init() -> WorkerState:
        params, model_state = task.init(jax.random.key(config.seed))
        return init_state(
            params,
            optimizer,
            strategy,
            mesh=mesh,
            num_workers=config.num_workers,
            model_state=model_state,
            seed=config.seed,
            reduction=reduction,
            model_state_policy=config.model_state_policy,
        )

    for which in config.evaluate:
        check_kept("evaluate", which, jax.eval_shape(init), strategy)
    return Components(
        dataset,
        shards,
        task,
        schedule,
        optimizer,
        strategy,
        reduction,
        mesh,
        batches,
        init,
    )


def build_task(config: Config, dataset: Dataset) -> Task:
    """Builds the network and its loss, for inputs like the data set's.

    >>> import jax
    >>> from olsgd_jax.training import Config, load_dataset
    >>> from olsgd_jax.training.components import build_task
    >>> task = build_task(Config(width=32), load_dataset("digits"))
    >>> params, _ = task.init(jax.random.key(0))
    >>> sum(x.size for x in jax.tree.leaves(params))
    2410
    """
    _check_fit(config, dataset.kind)
    given = {name: getattr(config, name) for name in MODELS[config.model].options}
    options = {name: value for name, value in given.items() if value is not None}
    module = make_model(
        config.model, dataset.num_classes, config.width, config.dtype, **options
    )
    one_batch = dataset.train_inputs[:1]
    return classification(
        module,
        jax.ShapeDtypeStruct(one_batch.shape, one_batch.dtype),
        augment=crop_and_flip if config.augment else None,
        prepare=normalise if one_batch.dtype == "uint8" else None,
    )


def build_mesh(config: Config) -> Mesh | None:
    """Places the workers: one device each, or several as lanes of a device.

    If the config names no mapping, the mesh has as many slots as there are devices that
    can share the workers evenly, or it is None if that is one device. All processes
    have the same number of workers and of devices for them.

    >>> from olsgd_jax.training import Config
    >>> from olsgd_jax.training.components import build_mesh
    >>> build_mesh(Config(mapping="vmap")) is None
    True
    """
    m, num_processes = config.num_workers, jax.process_count()
    if config.mapping in ("vmap", "pmap") and num_processes > 1:
        raise ValueError(
            f"mapping must not be {config.mapping} with {num_processes} processes, "
            "each of which has a part of the workers; leave it out"
        )
    if config.mapping == "vmap":
        return None
    own, devices = share_workers(m, num_processes), process_devices()
    slots = max(x for x in range(1, own + 1) if own % x == 0 and x <= len(devices[0]))
    if config.mapping is None and slots == 1 < m and num_processes == 1:
        return None
    if config.mapping == "pmap":
        slots = own
    chosen = [device for devices in devices for device in devices[:slots]]
    return worker_mesh(slots * num_processes, chosen)


def _check_fit(config: Config, kind: str) -> None:
    """Raises unless model and options fit a data set of this kind."""
    check_choice("model", config.model, tuple(MODELS))
    model = MODELS[config.model]
    if kind not in model.inputs:
        names = [name for name, model in MODELS.items() if kind in model.inputs]
        raise ValueError(
            f"model must be one of {', '.join(names)} for {config.dataset}, which has "
            f"{kind}, got {config.model!r}"
        )
    if config.augment and kind != "images":
        raise ValueError(
            f"augment must be False for {config.dataset}, which has {kind}"
        )
    every = dict.fromkeys(x for model in MODELS.values() for x in model.options)
    unused = [name for name in every if name not in model.options]
    check_left_out(config, unused, "model", config.model)


def _check_memory(config: Config, dataset: Dataset, task: Task) -> None:
    """Raises if a run cannot fit into memory, before anything is put there.

    Counts the least that a process needs: the batches of one round, and for each of its
    workers the parameters, their gradient and the optimizer's momentum.
    """
    own = config.num_workers / jax.process_count()
    example = dataset.train_inputs[:1].nbytes + dataset.train_labels[:1].nbytes
    batches = own * config.sync_period * config.batch_size * example
    host = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if batches > host:
        raise ValueError(
            "sync_period, batch_size and num_workers must let the batches of a round "
            f"fit into memory, got {_gigabytes(batches)} of them and "
            f"{_gigabytes(host)}; use smaller ones"
        )
    params, _ = jax.eval_shape(task.init, jax.random.key(0))
    sizes = [x.dtype.itemsize * x.size for x in jax.tree.leaves(params)]
    models = own * 3 * sum(sizes)
    stats = [device.memory_stats() or {} for device in jax.local_devices()]
    # CPUs give no limit: their memory is the host's.
    devices = sum(x.get("bytes_limit", 0) for x in stats) or host
    if models > devices:
        raise ValueError(
            "width and num_workers must let the models of all workers fit into memory, "
            f"got {_gigabytes(models)} of models, gradients and momentum and "
            f"{_gigabytes(devices)}; use smaller ones"
        )


def _gigabytes(num_bytes: float) -> str:
    return f"{num_bytes / 1e9:,.3g} GB"
