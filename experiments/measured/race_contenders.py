"""Contenders of `race`: a strategy, a sync period and a reduction, by one name."""

import dataclasses
import itertools
import re
from typing import NamedTuple

from experiments.pages.names import named
from experiments.paper.cases import EVERY_STEP
from experiments.paper.published import NAMES
from experiments.paper.sweep import EVERY
from olsgd_jax import REDUCTIONS, STRATEGIES
from olsgd_jax.training import (
    Config,
    build_reduction,
    build_strategy,
    check_choice,
)

MOST_STEPS = 10**6
"""Local steps after which a run ends; it reaches its target or its limit before."""


class Setting(NamedTuple):
    """What all runs have in common."""

    dataset: str
    width: int  # of the hidden layer
    seed: int
    evaluate_steps: int  # local steps from one evaluation to the next


def parse(name: str) -> Config:
    """Makes the config of a contender from its name; only what it names is set.

    A name starts with a strategy. Any of its arguments, the reduction with its own, and
    the sync period follow, as in the names of a sweep's runs.

    >>> config = parse("overlap_local_sgd-pullback0.5-tau8-int4")
    >>> config.strategy_args, config.sync_period, config.reduction
    ({'pullback': 0.5, 'anchor_momentum': 0.7}, 8, 'int4')
    """
    strategy, *parts = name.split("-")
    check_choice("strategy of a contender", strategy, tuple(STRATEGIES))
    args: dict[str, dict[str, int | float]] = {strategy: {}}
    own, sync_period = strategy, None
    for part in parts:
        found = re.fullmatch(r"([a-z_]+)([0-9]+(?:\.[0-9]+)?)", part)
        if part in REDUCTIONS:
            own = part
            args[own] = {}
        elif found is None:
            raise ValueError(
                "a contender must be a strategy and, after dashes, its arguments, its "
                f"sync period and a reduction, as in local_sgd-tau8-int4, got {name!r}"
            )
        else:
            value = float(found[2])
            value = int(value) if value.is_integer() else value
            if found[1] == "tau":
                sync_period = value
            else:
                args[own][found[1]] = value
    _, *reductions = args
    if (
        (sync_period is None) != (strategy in EVERY_STEP)
        or isinstance(sync_period, float)
        or len(reductions) > 1
    ):
        raise ValueError(
            "a contender must have a whole sync period, as in local_sgd-tau8, unless "
            f"it averages at every step, and at most one reduction, got {name!r}"
        )
    config = Config(
        strategy=strategy,
        strategy_args={**STRATEGIES[strategy].args, **args[strategy]},
        # The rounds of one that averages at every step only set when to evaluate.
        sync_period=EVERY if sync_period is None else sync_period,
        reduction=reductions[0] if reductions else Config.reduction,
        reduction_args=args[reductions[0]] if reductions else None,
    )
    build_strategy(config)  # checks its arguments
    build_reduction(config)
    return config


def searched(name: str) -> str:
    """Names the contender whose search gives this one its learning rate.

    It has the same strategy, the exact mean and a sync period of 8. One that averages
    gradients has a search of its own.

    >>> searched("cocod_sgd-tau48-int4"), searched("sync_sgd-low_rank-rank4")
    ('cocod_sgd-tau8', 'sync_sgd-low_rank-rank4')
    """
    strategy, *parts = name.split("-")
    if strategy in EVERY_STEP:
        return name
    exact = itertools.takewhile(lambda x: x not in REDUCTIONS, parts)
    own = [x for x in exact if not x.startswith("tau")]
    return "-".join([strategy, *own, f"tau{EVERY}"])


def config_of(
    name: str, num_hosts: int, setting: Setting, learning_rate: float
) -> Config:
    """Makes the whole config of a contender's run, with a worker on every host."""
    own = parse(name)
    return dataclasses.replace(
        own,
        dataset=setting.dataset,
        model="mlp",
        width=setting.width,
        seed=setting.seed,
        num_workers=num_hosts,
        num_rounds=max(1, MOST_STEPS // own.sync_period),
        evaluate_every=max(1, round(setting.evaluate_steps / own.sync_period)),
        learning_rate=learning_rate,
    )


def title_of(name: str) -> str:
    """Names a contender in prose.

    >>> title_of("sync_sgd-low_rank-rank4"), title_of("local_sgd-tau8-int4")
    ('PowerSGD, rank 4', 'Local SGD, τ = 8, int4')
    """
    config = parse(name)
    usual = STRATEGIES[config.strategy].args
    strategy, reduction = named(
        config.strategy, config.reduction, config.reduction_args, NAMES
    )
    own = [
        f"{arg.replace('_', ' ')} {x:g}"
        for arg, x in (config.strategy_args or {}).items()
        if usual.get(arg) != x
    ]
    if config.strategy not in EVERY_STEP:
        own.append(f"τ = {config.sync_period}")
    return ", ".join(filter(None, [strategy, *own, reduction]))
