"""The learning rate of every local step k, as the config's schedule has it.

    steps           γ(k) = γ₀ + (γ₁ − γ₀) min(k / warm-up, 1), a tenth of it after
                    every decay
    warmup_cosine   γ(k) = γ₁ (k + 1) / (w + 1)                  for k < w
                    γ(k) = γ₁ (f + (1 − f) (1 + cos π p) / 2)    p = (k − w) / (K − w)

γ₀ is the base rate and γ₁ the scaled one, γ₀ × workers × batch size / 128, since m
workers process m times as many examples per step as one worker; without scaling they
are equal. `steps` counts epochs, and `warmup_cosine` local steps: w of warm-up and K in
the whole run. f γ₁ is the rate at its end.

References: P. Goyal et al., "Accurate, Large Minibatch SGD", 2017, arXiv:1706.02677;
I. Loshchilov, F. Hutter, "SGDR: Stochastic Gradient Descent with Warm Restarts", ICLR
2017, arXiv:1608.03983, here without restarts.
"""

import jax
import jax.numpy as jnp
import optax

from olsgd_jax.training.components.arguments import check_left_out
from olsgd_jax.training.config import Config

REFERENCE_BATCH_SIZE = 128  # of one worker; base rates are for this size

_OWN = {
    "steps": ("warmup_epochs", "decay_epochs"),
    "warmup_cosine": ("warmup_steps", "final_fraction"),
}
"""Options that one schedule alone uses."""


def build_schedule(
    config: Config, num_examples: float, ahead: float = 0.0
) -> optax.Schedule:
    """Builds the learning rate as a function of the number of local steps so far.

    Args:
      config: options of the run.
      num_examples: number of examples of all workers together, which make an epoch.
      ahead: local steps by which the run is ahead of its step count, because it had
        more workers before; negative if it had fewer. `warmup_cosine` ignores it: the
        number of local steps in a run does not change with the workers.

    >>> from olsgd_jax.training import Config
    >>> from olsgd_jax.training.components import build_schedule
    >>> config = Config(learning_rate=0.1, batch_size=64, scale_learning_rate=True)
    >>> schedule = build_schedule(config, num_examples=1024)  # 4 steps an epoch
    >>> round(schedule(0).item(), 3)
    0.2
    """
    for name, options in _OWN.items():
        if name != config.schedule:
            check_left_out(config, options, "schedule", config.schedule)
    peak = config.learning_rate
    if config.scale_learning_rate:
        peak *= config.num_workers * config.batch_size / REFERENCE_BATCH_SIZE
    if config.schedule == "warmup_cosine":
        return _warmup_cosine(config, peak)
    return _steps(config, peak, num_examples, ahead)


def _steps(
    config: Config, peak: float, num_examples: float, ahead: float
) -> optax.Schedule:
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


def _warmup_cosine(config: Config, peak: float) -> optax.Schedule:
    warmup, num_steps = config.warmup_steps, config.num_steps(config.num_rounds)
    if warmup >= num_steps:
        raise ValueError(
            "warmup_steps must be below the number of local steps in the run, got "
            f"{warmup} and {num_steps}; use fewer, or more num_rounds"
        )

    def schedule(step: jax.typing.ArrayLike) -> jax.Array:
        step = jnp.asarray(step, jnp.float32)
        progress = jnp.clip((step - warmup) / (num_steps - warmup), 0, 1)
        falls = (1 + jnp.cos(jnp.pi * progress)) / 2
        final = config.final_fraction
        rises = (step + 1) / (warmup + 1)
        return peak * jnp.where(step < warmup, rises, final + (1 - final) * falls)

    return schedule
