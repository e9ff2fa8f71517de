"""What is known about a run before it starts."""

from typing import NamedTuple

import jax

from olsgd_jax.round.worker_round import make_worker_round
from olsgd_jax.timing.payload import payload_bytes
from olsgd_jax.training.components import Components, build
from olsgd_jax.training.config import Config
from olsgd_jax.training.data.partition import label_histogram
from olsgd_jax.training.records.types import Amount, Whole


class Facts(NamedTuple):
    """What follows from a config and its data.

    >>> from olsgd_jax.training import Config, describe
    >>> describe(Config(strategy="local_sgd", width=32)).num_parameters
    2410
    """

    num_parameters: Whole  # of one worker's model
    bytes_per_round: Whole  # sent by one worker, as its reduction writes them
    num_steps: Whole  # local steps of each worker in the whole run
    num_epochs: Amount  # passes over the workers' examples, on average
    # Examples by worker and class; windows of a text all count as one class.
    histogram: list[list[int]]


def describe(config: Config, components: Components | None = None) -> Facts:
    """Describes a run before it starts.

    Args:
      config: options of the run.
      components: what `build` made of it; built here by default.

    >>> from olsgd_jax.training import Config, describe
    >>> facts = describe(Config(num_rounds=90, num_workers=2, batch_size=32))
    >>> facts.num_steps, facts.num_epochs, len(facts.histogram)
    (360, 16.0, 2)
    """
    components = components or build(config)
    state = jax.eval_shape(components.init)
    worker_round = make_worker_round(
        components.task.loss,
        components.optimizer,
        components.strategy,
        config.model_state_policy,
        components.reduction,
    )
    num_bytes = payload_bytes(
        worker_round, state, components.batches(1), num_workers=config.num_workers
    )
    num_steps = config.num_steps(config.num_rounds)
    dataset, shards = components.dataset, components.shards
    if dataset.kind == "text":
        histogram = [[len(shard)] for shard in shards]
    else:
        counts = label_histogram(dataset.train_labels, shards, dataset.num_classes)
        histogram = counts.tolist()
    num_examples = num_steps * config.num_workers * config.batch_size
    return Facts(
        num_parameters=sum(x.size for x in jax.tree.leaves(state.params))
        // config.num_workers,
        bytes_per_round=num_bytes,
        num_steps=num_steps,
        num_epochs=num_examples / dataset.epoch_size(shards),
        histogram=histogram,
    )
