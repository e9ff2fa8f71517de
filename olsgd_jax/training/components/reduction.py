"""The reduction that a config names, with its arguments."""

from olsgd_jax._checks import check_choice
from olsgd_jax.reductions import REDUCTIONS
from olsgd_jax.reductions.base import Reduction
from olsgd_jax.training.components.arguments import built
from olsgd_jax.training.config import Config


def build_reduction(config: Config) -> Reduction:
    """Builds the reduction of a config.

    >>> from olsgd_jax.training import Config
    >>> from olsgd_jax.training.components import build_reduction
    >>> build_reduction(Config(reduction="int8")).name
    'int8'
    """
    check_choice("reduction", config.reduction, tuple(REDUCTIONS))
    builder, given = REDUCTIONS[config.reduction], config.reduction_args or {}
    return built("reduction", config.reduction, builder, given)
