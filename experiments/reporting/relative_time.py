"""A model of the time that runs take, where no network lies between devices."""

from olsgd_jax import Config, Run
from olsgd_jax.build import build_strategy

MEAN_COST = 0.346  # local steps: the paper's ratio of communication to computation


def relative_time(run: Run, mean_cost: float) -> float:
    """Gives the time of a run in that of its local steps alone.

    Args:
      run: with the facts of its config.
      mean_cost: of one mean of a whole model, in local steps.
    """
    if run.facts is None:
        raise ValueError("run must have facts, got None; train it with a newer version")
    config = Config(**run.config)
    strategy = build_strategy(config, lambda step: 1.0)
    models_per_round = run.facts["bytes_per_round"] / (4 * run.facts["num_parameters"])
    cost = mean_cost * models_per_round / config.sync_period  # per local step
    return 1 + (max(0.0, cost - 1) if strategy.mean_of == "start" else cost)
