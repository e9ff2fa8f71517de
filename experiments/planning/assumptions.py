"""Assumptions where nothing can be measured: models, accelerators and networks."""

import math
from typing import NamedTuple

from olsgd_jax.training import check_count, check_number


class Model(NamedTuple):
    """What a worker trains, and on how much hardware."""

    num_parameters: float  # float32
    flops_per_example: float  # forward and backward
    batch_size: int
    accelerators: int  # per worker

    @property
    def num_bytes(self) -> float:
        """Bytes of one model."""
        return 4 * self.num_parameters


class Link(NamedTuple):
    """What connects a worker to the others."""

    bandwidth: float  # bytes per second
    latency: float  # seconds


TOKENS = 2048  # per example; a token takes 6 operations per parameter
MODELS = {
    "11 M": Model(11_173_962, 3.3e9, 128, accelerators=1),  # ResNet-18 on CIFAR-10
    "1 B": Model(1e9, 6e9 * TOKENS, 8, accelerators=1),
    "100 B": Model(1e11, 6e11 * TOKENS, 8, accelerators=64),
}
LINKS = {
    "100 Mbit": Link(12.5e6, 10e-3),  # between sites
    "10 Gbit": Link(1.25e9, 50e-6),  # Ethernet
    "400 Gbit": Link(50e9, 5e-6),  # InfiniBand
}


def step_seconds(model: Model, flops: float, utilisation: float) -> float:
    """Computes the shortest time of a local step.

    Args:
      model: the model to train.
      flops: peak of one accelerator, in operations per second.
      utilisation: fraction of the peak that a local step reaches.
    """
    check_number("flops", flops, 0, math.inf, "()")
    check_number("utilisation", utilisation, 0, 1, "(]")
    check_count("batch_size", model.batch_size)
    work = model.batch_size * model.flops_per_example
    return work / (model.accelerators * flops * utilisation)
