"""What a config stands for: its names and numbers become data, task and strategy."""

import inspect
from collections.abc import Callable
from typing import NamedTuple

import jax
import optax
from jax.sharding import Mesh

from olsgd_jax.checks import check_choice
from olsgd_jax.config import Config
from olsgd_jax.data.batches import make_batches
from olsgd_jax.data.datasets import Dataset, load_dataset
from olsgd_jax.data.partition import partition_iid
from olsgd_jax.local import WorkerState
from olsgd_jax.mesh import worker_mesh
from olsgd_jax.models.mlp import MLP
from olsgd_jax.state import init_state
from olsgd_jax.strategies import STRATEGIES
from olsgd_jax.strategies.base import Strategy
from olsgd_jax.task import Task, classification
from olsgd_jax.types import Batch


class Parts(NamedTuple):
    """What a config stands for."""

    dataset: Dataset
    task: Task
    optimizer: optax.GradientTransformation
    strategy: Strategy
    mesh: Mesh | None  # None: workers are lanes of one device
    batches: Callable[[int], Batch]  # of any round; rounds count from 0
    init: Callable[[], WorkerState]  # the state before the first round


def build(config: Config) -> Parts:
    """Builds all that a config names, and trains nothing.

    >>> from olsgd_jax import Config
    >>> from olsgd_jax.build import build
    >>> parts = build(Config(strategy="local_sgd"))
    >>> parts.strategy.mean_of, parts.batches(0)["inputs"].shape
    ('end', (4, 4, 32, 64))
    """
    strategy = build_strategy(config)
    dataset = load_dataset(config.dataset)
    task = build_task(config, dataset)
    optimizer = build_optimizer(config)
    mesh = build_mesh(config)
    batches = make_batches(
        {"inputs": dataset.train_inputs, "labels": dataset.train_labels},
        partition_iid(len(dataset.train_labels), config.num_workers, config.seed),
        sync_period=config.sync_period,
        batch_size=config.batch_size,
        seed=config.seed,
        mesh=mesh,
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
        )

    return Parts(dataset, task, optimizer, strategy, mesh, batches, init)


def build_strategy(config: Config) -> Strategy:
    """Builds the strategy, which is told num_workers if its equations contain it.

    >>> from olsgd_jax import Config
    >>> from olsgd_jax.build import build_strategy
    >>> build_strategy(Config(strategy="easgd", num_workers=8)).num_workers
    8
    """
    check_choice("strategy", config.strategy, tuple(STRATEGIES))
    builder, given = STRATEGIES[config.strategy], config.strategy_args or {}
    signature = inspect.signature(builder)
    asks = "num_workers" in signature.parameters
    told = {"num_workers": config.num_workers} if asks else {}
    try:
        signature.bind(**given, **told)
    except TypeError as error:
        names = [name for name in signature.parameters if name not in told]
        raise ValueError(
            f"strategy_args must fit {config.strategy}({', '.join(names)}), "
            f"got {given}; pass strategy_args=None for its defaults"
        ) from error
    return builder(**given, **told)


def build_task(config: Config, dataset: Dataset) -> Task:
    """Builds the network and its loss, for inputs like the data set's.

    >>> import jax
    >>> from olsgd_jax import Config, load_dataset
    >>> from olsgd_jax.build import build_task
    >>> task = build_task(Config(width=32), load_dataset("digits"))
    >>> params, _ = task.init(jax.random.key(0))
    >>> sum(x.size for x in jax.tree.leaves(params))
    2410
    """
    module = MLP(config.width, dataset.num_classes, config.dropout)
    one_batch = dataset.train_inputs[:1]
    return classification(
        module, jax.ShapeDtypeStruct(one_batch.shape, one_batch.dtype)
    )


def build_optimizer(config: Config) -> optax.GradientTransformation:
    """Builds SGD with Nesterov momentum and weight decay, as in the paper.

    >>> from olsgd_jax import Config
    >>> from olsgd_jax.build import build_optimizer
    >>> optimizer = build_optimizer(Config(learning_rate=0.5, momentum=0.0))
    >>> updates, _ = optimizer.update(1.0, optimizer.init(0.0), 0.0)
    >>> updates.item()
    -0.5
    """
    return optax.chain(
        optax.add_decayed_weights(config.weight_decay),
        optax.sgd(config.learning_rate, config.momentum, nesterov=True),
    )


def build_mesh(config: Config) -> Mesh | None:
    """Places the workers: one device each, or lanes of one device (None).

    A config that names no mapping gets a device per worker where there are enough.

    >>> from olsgd_jax import Config
    >>> from olsgd_jax.build import build_mesh
    >>> build_mesh(Config(mapping="vmap")) is None
    True
    """
    enough = jax.device_count() >= config.num_workers
    if config.mapping == "vmap" or (config.mapping is None and not enough):
        return None
    return worker_mesh(config.num_workers)
