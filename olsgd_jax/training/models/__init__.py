"""Networks by name: linen modules that map inputs to logits."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax.numpy as jnp

from olsgd_jax._checks import check_choice
from olsgd_jax.training.models.mlp import MLP
from olsgd_jax.training.models.resnet import ResNet
from olsgd_jax.types import Dtype


class Model(NamedTuple):
    """How to make a network, and what it takes."""

    make: Callable[..., nn.Module]  # width, num_classes, dtype -> network
    width: int  # default width
    # Numbers of axes that a batch of inputs may have: 2 for vectors, 4 for images.
    inputs: tuple[int, ...]


_RESNET8 = functools.partial(ResNet, blocks=(1, 1, 1), entrance_stride=2)

MODELS: dict[str, Model] = {
    "mlp": Model(MLP, width=64, inputs=(2, 4)),
    "resnet18": Model(ResNet, width=64, inputs=(4,)),
    "resnet8": Model(_RESNET8, width=16, inputs=(4,)),
}
"""Every network by its name: resnet18 is the paper's, resnet8 fits a CPU."""


def make_model(
    name: str,
    num_classes: int,
    width: int | None = None,
    dtype: Dtype = "float32",
    **options: float,
) -> nn.Module:
    """Makes a network by its name in `MODELS`.

    Args:
      name: name of the network.
      num_classes: number of logits.
      width: width of the first layer; None: the network's default.
      dtype: dtype of the computation; parameters are float32.
      **options: other options of the network, such as the dropout of "mlp".

    >>> from olsgd_jax.training import make_model
    >>> make_model("resnet8", num_classes=10).width
    16
    """
    check_choice("model", name, tuple(MODELS))
    model = MODELS[name]
    return model.make(
        width=width or model.width,
        num_classes=num_classes,
        dtype=jnp.dtype(dtype),
        **options,
    )
