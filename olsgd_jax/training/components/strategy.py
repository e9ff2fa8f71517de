"""The strategy that a config names, with its arguments."""

import inspect

import optax

from olsgd_jax._checks import check_choice
from olsgd_jax.strategies import STRATEGIES
from olsgd_jax.strategies.base import Strategy, check_delayed
from olsgd_jax.training.components.arguments import built
from olsgd_jax.training.config import Config

_INSTEAD = {"powersgd": "use sync_sgd with the reduction low_rank"}


def build_strategy(config: Config, schedule: optax.Schedule | None = None) -> Strategy:
    """Builds the strategy of a config.

    Args:
      config: options of the run.
      schedule: the learning rate; needed if the velocity is divided by it.

    >>> from olsgd_jax.training import Config, build_strategy
    >>> build_strategy(Config(strategy="easgd", num_workers=8)).num_workers
    8
    """
    check_choice("strategy", config.strategy, tuple(STRATEGIES), _INSTEAD)
    builder, given = STRATEGIES[config.strategy].build, config.strategy_args or {}
    signature = inspect.signature(builder)
    told = {"num_workers": config.num_workers, "learning_rate": schedule}
    told = {name: x for name, x in told.items() if name in signature.parameters}
    if not config.rated_velocity:
        told.pop("learning_rate", None)
    elif "learning_rate" not in told:
        raise ValueError(
            f"rated_velocity must be False under {config.strategy}, which keeps no "
            "velocity; overlap_local_sgd and slowmo do"
        )
    return built("strategy", config.strategy, builder, given, told)


def named_strategy(text: str, num_workers: int) -> tuple[Strategy, bool]:
    """Builds a strategy from its name on a command line.

    Args:
      text: a name, optionally with ":stream" after it.
      num_workers: number of workers, m.

    Returns:
      The strategy, and whether its rounds are streamed.

    >>> from olsgd_jax.training import named_strategy
    >>> strategy, stream = named_strategy("overlap_local_sgd:stream", num_workers=4)
    >>> strategy.mean_of, stream
    ('start', True)
    """
    name, _, detail = text.partition(":")
    if detail not in ("", "stream"):
        raise ValueError(f"strategy must have stream after its colon, got {text}")
    config = Config(strategy=name, num_workers=num_workers)
    strategy, stream = build_strategy(config), detail == "stream"
    if stream:
        check_delayed("stream must be False", strategy)
    return strategy, stream
