"""The optimizer of every worker: SGD with Nesterov momentum, and its learning rate.

    γ(k) = γ₀ + (γ₁ − γ₀) min(k / warm-up, 1), a tenth of it after every decay

γ₀ is the base rate and γ₁ the scaled one, γ₀ × workers × batch size / 128, since m
workers process m times as many examples per step as one worker.

Reference: P. Goyal et al., "Accurate, Large Minibatch SGD", 2017, arXiv:1706.02677.
"""

import jax
import jax.numpy as jnp
import optax

from olsgd_jax.training.config import Config
from olsgd_jax.types import Params

REFERENCE_BATCH_SIZE = 128  # of one worker; base rates are for this size


def build_schedule(
    config: Config, num_examples: int, ahead: float = 0.0
) -> optax.Schedule:
    """Builds the learning rate as a function of the number of local steps so far.

    Args:
      config: options of the run.
      num_examples: number of examples of all workers together, which make an epoch.
      ahead: local steps by which the run is ahead of its step count, because it had
        more workers before; negative if it had fewer.

    >>> from olsgd_jax.training import Config
    >>> from olsgd_jax.training.components import build_schedule
    >>> config = Config(learning_rate=0.1, batch_size=64, scale_learning_rate=True)
    >>> schedule = build_schedule(config, num_examples=1024)  # 4 steps an epoch
    >>> round(schedule(0).item(), 3)
    0.2
    """
    peak = config.learning_rate
    if config.scale_learning_rate:
        peak *= config.num_workers * config.batch_size / REFERENCE_BATCH_SIZE
    steps_per_epoch = num_examples / (config.num_workers * config.batch_size)
    decays = jnp.array(config.decay_epochs, jnp.float32) * steps_per_epoch
    warmup = config.warmup_epochs * steps_per_epoch

    def schedule(step: jax.typing.ArrayLike) -> jax.Array:
        step = jnp.asarray(step, jnp.float32) + ahead
        has_warmup = warmup > 1e-30  # or it is 0 as a float32
        progress = jnp.minimum(step / warmup, 1) if has_warmup else jnp.ones_like(step)
        rate = config.learning_rate + (peak - config.learning_rate) * progress
        return rate * 0.1 ** jnp.sum(step >= decays, dtype=jnp.float32)

    return schedule


def build_optimizer(
    config: Config, schedule: optax.Schedule
) -> optax.GradientTransformation:
    """Builds SGD with Nesterov momentum and weight decay, as in the paper.

    >>> from olsgd_jax.training import Config
    >>> from olsgd_jax.training.components import build_optimizer
    >>> optimizer = build_optimizer(Config(momentum=0.0), lambda step: 0.5)
    >>> updates, _ = optimizer.update(1.0, optimizer.init(0.0), 0.0)
    >>> updates.item()
    -0.5
    """

    def decayed(params: Params) -> Params:
        return jax.tree.map(lambda x: config.decay_vectors or x.ndim > 1, params)

    return optax.chain(
        optax.add_decayed_weights(config.weight_decay, mask=decayed),
        optax.sgd(schedule, config.momentum, nesterov=True),
    )
