"""Networks by name: linen modules that map inputs to logits."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax.numpy as jnp
from jax.typing import DTypeLike

from olsgd_jax._checks import check_choice
from olsgd_jax.training.models.mlp import MLP
from olsgd_jax.training.models.resnet import ResNet
from olsgd_jax.training.models.transformer import Transformer
from olsgd_jax.types import Dtype


class Model(NamedTuple):
    """How to make a network, and what it takes."""

    make: Callable[..., nn.Module]  # width, num_classes, dtype -> network
    width: int  # default width
    inputs: tuple[str, ...]  # kinds of data sets that it fits
    options: tuple[str, ...] = ()  # other options of a config that it takes


def _transformer(
    width: int,
    num_classes: int,
    dtype: DTypeLike,
    depth: int = 4,
    num_heads: int = 4,
    tie_weights: bool = True,
    dropout: float = 0.0,
) -> Transformer:
    if width % num_heads:
        raise ValueError(
            f"width must be a multiple of num_heads, got {width} and {num_heads}"
        )
    return Transformer(
        num_classes,
        width,
        depth,
        num_heads,
        dropout=dropout,
        tie_weights=tie_weights,
        use_bias=False,
        dtype=dtype,
    )


_RESNET8 = functools.partial(ResNet, blocks=(1, 1, 1), entrance_stride=2)

MODELS: dict[str, Model] = {
    "mlp": Model(
        MLP, width=64, inputs=("vectors", "images"), options=("dropout", "depth")
    ),
    "resnet18": Model(ResNet, width=64, inputs=("images",)),
    "resnet8": Model(_RESNET8, width=16, inputs=("images",)),
    "transformer": Model(
        _transformer,
        width=128,
        inputs=("text",),
        options=("dropout", "depth", "num_heads", "tie_weights"),
    ),
}
"""Every network by its name: resnet18 is the paper's, resnet8 fits a CPU.

The transformer has no biases, as is usual for language models.
"""


def make_model(
    name: str,
    num_classes: int,
    width: int | None = None,
    dtype: Dtype = "float32",
    **options: float | bool,
) -> nn.Module:
    """Makes a network by its name in `MODELS`.

    Args:
      name: name of the network.
      num_classes: number of logits; for a text, of different tokens.
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
