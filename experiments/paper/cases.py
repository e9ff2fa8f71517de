"""Runs sorted into cases and groups by their configs, not their file names.

A case is what a paper reports one number for: a strategy and its sync period. Its runs
differ in their seeds. A group holds the cases that may be compared: the same data,
network, workers and schedule.
"""

import dataclasses
import statistics
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from experiments.pages.names import POWERSGD, named
from experiments.paper.presets import preset
from experiments.paper.published import NAMES
from olsgd_jax import STRATEGIES
from olsgd_jax.training import Config, Run, build_strategy
from olsgd_jax.types import Option

EVERY_STEP = tuple(
    name
    for name in STRATEGIES
    if build_strategy(Config(strategy=name)).mean_of == "gradients"
)
"""Strategies that average at every step; their rounds only set when to evaluate."""

Seeds = Mapping[int, Run]  # by seed

# Options that distinguish the cases of a group, or do not change the result.
_OF_CASES = ("strategy", "strategy_args", "rated_velocity", "sync_period", "num_rounds")
_OF_CASES += (
    "reduction",
    "reduction_args",
    "evaluate_every",
    "seed",
    "data_dir",
    "mapping",
)
_POWERSGD, _ = named(*POWERSGD)
# In the order of the strategies' lines in figures.
_LOOKS = ("overlap_local_sgd", "sync_sgd", "cocod_sgd", "easgd", "local_sgd", "slowmo")
_LOOKS += (_POWERSGD,)
_LOOKS += tuple(name for name in STRATEGIES if name not in _LOOKS)


class Case(NamedTuple):
    """What runs that differ in their seed have in common."""

    strategy: str
    rated_velocity: bool
    sync_period: int  # τ
    args: tuple[tuple[str, float], ...]  # of the strategy
    reduction: str = Config.reduction
    reduction_args: tuple[tuple[str, float], ...] = ()

    @property
    def name(self) -> str:
        """The name of its strategy in prose."""
        name, _ = named(self.strategy, self.reduction, labels=NAMES)
        return f"{name}, rated velocity" if self.rated_velocity else name

    @property
    def look(self) -> int:
        """The number of its strategy's line in every figure."""
        return (*_LOOKS, self.kind).index(self.kind)

    @property
    def kind(self) -> str:
        """Its strategy, or "PowerSGD", which has a line of its own."""
        is_powersgd = (self.strategy, self.reduction) == POWERSGD
        return _POWERSGD if is_powersgd else self.strategy

    @property
    def is_exact(self) -> bool:
        """Whether its messages arrive as they were sent."""
        return self.reduction == Config.reduction

    @property
    def is_tuned(self) -> bool:
        """Whether it is the paper's: its arguments, and the exact mean."""
        return self.is_exact and dict(self.args) == _chosen(self).strategy_args


class Group(NamedTuple):
    """Cases that may be compared."""

    title: str  # unique
    setting: str  # what its cases have in common, in a few words
    data: str  # "iid" or "non_iid"
    cases: dict[Case, dict[int, Run]]  # runs by seed


def groups(runs: Iterable[Run]) -> list[Group]:
    """Sorts runs into groups, those on IID data first.

    Of two runs of the same case and seed, the first counts. Unfinished runs are left
    out.
    """
    found: dict[tuple, tuple[dict[str, Option], dict[Case, dict[int, Run]]]] = {}
    for run in runs:
        if run.outcome is None:
            continue
        config = Config(**run.config)
        case, setting = case_of(config), _setting(config)
        _, cases = found.setdefault(tuple(setting.values()), (setting, {}))
        cases.setdefault(case, {}).setdefault(config.seed, run)
    settings = [setting for setting, _ in found.values()]
    ordered = sorted(found.values(), key=lambda x: x[0]["partition"] != "iid")
    return [
        Group(_title(setting, settings), _words(setting, cases), _data(setting), cases)
        for setting, cases in ordered
    ]


def case_of(config: Config) -> Case:
    """Returns the case of a run."""
    return Case(
        config.strategy,
        config.rated_velocity,
        1 if config.strategy in EVERY_STEP else config.sync_period,
        tuple(sorted((config.strategy_args or {}).items())),
        config.reduction,
        tuple(sorted((config.reduction_args or {}).items())),
    )


def _chosen(case: Case) -> Config:
    return preset("paper", case.strategy, case.sync_period)


def _setting(config: Config) -> dict[str, Option]:
    """Returns the options that all cases of a group have in common."""
    setting = {
        name: value
        for name, value in dataclasses.asdict(config).items()
        if name not in _OF_CASES
    }
    # The paper uses a different base rate in one of its cases.
    if config.learning_rate == _chosen(case_of(config)).learning_rate:
        setting["learning_rate"] = Config.learning_rate
    return setting


def _data(setting: dict[str, Option]) -> str:
    return "iid" if setting["partition"] == "iid" else "non_iid"


def _title(setting: dict[str, Option], settings: Iterable[dict[str, Option]]) -> str:
    """Names a group after its data, and its differences from other groups."""
    title = "IID data"
    if _data(setting) == "non_iid":
        title = f"Non-IID data ({setting['partition']})"
    own = [
        f", {name} {value}"
        for name, value in setting.items()
        if name != "partition" and any(other[name] != value for other in settings)
    ]
    return title + "".join(own)


def _words(setting: dict[str, Option], cases: dict[Case, dict[int, Run]]) -> str:
    runs = [run for seeds in cases.values() for run in seeds.values()]
    epochs = [run.facts["num_epochs"] for run in runs if run.facts]
    words = f"{setting['model']}, {setting['num_workers']} workers"
    return f"{words}, {statistics.median(epochs):.0f} epochs" if epochs else words
