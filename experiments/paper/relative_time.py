"""Modelled time of runs whose devices have no network between them."""

from typing import NamedTuple

from olsgd_jax.timing import Constant, Setting, round_time
from olsgd_jax.training import Config, Run, build_strategy

MEAN_COST = 0.346  # local steps: the paper's ratio of communication to computation


class _Relative(NamedTuple):
    """A network on which one mean of a whole model takes `mean_cost` local steps."""

    mean_cost: float
    model_bytes: int

    def seconds(self, num_bytes: float, num_workers: int) -> float:
        """Computes the time of a mean, in local steps, in proportion to its bytes."""
        del num_workers
        return self.mean_cost * num_bytes / self.model_bytes


def relative_time(run: Run, mean_cost: float) -> float:
    """Computes the time of a run, divided by that of its local steps alone.

    One mean of a whole model costs `mean_cost` local steps.
    """
    if run.facts is None:
        raise ValueError("run must have facts, got None; train it with a newer version")
    config = Config(**run.config)
    setting = Setting(
        build_strategy(config, lambda step: 1.0),
        config.sync_period,
        run.facts["bytes_per_round"],
        config.num_workers,
        compute=Constant(1.0),
        network=_Relative(mean_cost, 4 * run.facts["num_parameters"]),
    )
    return round_time(setting).seconds / config.sync_period
