"""The optimizer of every worker, by its name in the config.

    sgd      Nesterov momentum, with weight decay added to the gradient, as in the paper
    adamw    Adam with decoupled weight decay
    muon     Nesterov momentum made orthogonal for the kernels of layers, Adam for all
             other parameters, with decoupled weight decay

Muon's updates are scaled to the size of Adam's, so one learning rate serves both.

References: I. Loshchilov, F. Hutter, "Decoupled Weight Decay Regularization", ICLR
2019, arXiv:1711.05101; J. Liu et al., "Muon is Scalable for LLM Training", 2025,
arXiv:2502.16982.
"""

from collections.abc import Callable

import jax
import optax
from optax import contrib

from olsgd_jax._checks import check_choice
from olsgd_jax.training.components.arguments import check_left_out
from olsgd_jax.training.config import Config
from olsgd_jax.types import ArrayTree, Params

MUON_RMS = 0.2  # root mean square of Adam's updates, roughly, in units of the rate

KeyPath = tuple[jax.tree_util.KeyEntry, ...]


def build_optimizer(
    config: Config, schedule: optax.Schedule
) -> optax.GradientTransformation:
    """Builds the optimizer of a config.

    >>> from olsgd_jax.training import Config
    >>> from olsgd_jax.training.components import build_optimizer
    >>> optimizer = build_optimizer(Config(momentum=0.0), lambda step: 0.5)
    >>> updates, _ = optimizer.update(1.0, optimizer.init(0.0), 0.0)
    >>> updates.item()
    -0.5
    """
    check_choice("optimizer", config.optimizer, tuple(OPTIMIZERS))
    optimizer = OPTIMIZERS[config.optimizer](config, schedule)
    if config.clip_norm is None:
        return optimizer
    return optax.chain(optax.clip_by_global_norm(config.clip_norm), optimizer)


def _sgd(config: Config, schedule: optax.Schedule) -> optax.GradientTransformation:
    check_left_out(config, ("beta2",), "optimizer", config.optimizer)
    return optax.chain(
        optax.add_decayed_weights(config.weight_decay, mask=_decayed(config)),
        optax.sgd(schedule, config.momentum, nesterov=True),
    )


def _adamw(config: Config, schedule: optax.Schedule) -> optax.GradientTransformation:
    return optax.adamw(
        schedule,
        b1=config.momentum,
        b2=config.beta2,
        weight_decay=config.weight_decay,
        mask=_decayed(config),
    )


def _muon(config: Config, schedule: optax.Schedule) -> optax.GradientTransformation:
    directions = contrib.muon(
        # With this rate it gives plain directions. optax would decay all parameters
        # of Adam, so decay and rate are applied after it, to all parameters alike.
        -1.0,
        beta=config.momentum,
        adam_b1=config.momentum,
        adam_b2=config.beta2,
        muon_weight_dimension_numbers=kernel_axes,
        consistent_rms=MUON_RMS,
    )
    return optax.chain(
        directions,
        optax.add_decayed_weights(config.weight_decay, mask=_decayed(config)),
        optax.scale_by_learning_rate(schedule),
    )


OPTIMIZERS: dict[
    str, Callable[[Config, optax.Schedule], optax.GradientTransformation]
] = {"sgd": _sgd, "adamw": _adamw, "muon": _muon}
"""Builders of every optimizer by its name: config, schedule -> optimizer.

To train with any other optimizer of optax, add a row before making the config's
components:

    OPTIMIZERS["lion"] = lambda config, schedule: optax.lion(schedule)
    train(Config(optimizer="lion"))
"""


def kernel_axes(params: Params) -> ArrayTree:
    """Says which axes of a layer's kernel are inputs and which are outputs.

    Returns:
      A tree like `params`, with None for everything that is no kernel.

    >>> import jax.numpy as jnp
    >>> kernel_axes({"Dense_0": {"kernel": jnp.zeros((2, 3)), "bias": jnp.zeros(3)}})
    {'Dense_0': {'bias': None, 'kernel': MuonDimensionNumbers(reduction_axis=(0,), ...
    """

    def axes(path: KeyPath, x: jax.Array) -> contrib.MuonDimensionNumbers | None:
        if _name(path) != "kernel" or x.ndim < 2:
            return None
        # Heads and their width are the outputs of these, and the inputs of `out`.
        is_split = _name(path[:-1]) in ("query", "key", "value")
        num_inputs = 1 if is_split else x.ndim - 1
        every = tuple(range(x.ndim))
        return contrib.MuonDimensionNumbers(every[:num_inputs], every[num_inputs:])

    return jax.tree.map_with_path(axes, params)


def _decayed(config: Config) -> Callable[[Params], ArrayTree]:
    """Builds the mask of the parameters that weight decay applies to."""

    def is_decayed(path: KeyPath, x: jax.Array) -> bool:
        # The biases of attention have two axes: heads, and their width.
        return config.decay_vectors or (x.ndim > 1 and _name(path) != "bias")

    return lambda params: jax.tree.map_with_path(is_decayed, params)


def _name(path: KeyPath) -> str:
    return jax.tree_util.keystr(path[-1:], simple=True)
