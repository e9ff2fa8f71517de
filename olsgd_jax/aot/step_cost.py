"""The cost of a local step: the flops of its program."""

from typing import cast

from jax.sharding import Mesh
from jax.stages import Wrapped

from olsgd_jax.aot.workloads import OPTIMIZER, Workload, arguments
from olsgd_jax.drivers.make_round import make_round
from olsgd_jax.drivers.platforms import platform_of
from olsgd_jax.overlap.report import overlap_report
from olsgd_jax.strategies.local_sgd import local_sgd

_NUM_STEPS = 2  # the compiler would unroll a loop of one step


def step_flops(workload: Workload, mesh: Mesh) -> float:
    """Compiles a round, and gives the flops of one local step on one device.

    If the compiler reports flops, its count is used, which counts a loop's body once.
    Otherwise matrix products and convolutions are counted in the schedule.

    Args:
      workload: the model and its batches.
      mesh: mesh of the target to compile for; see `target`.
    """
    strategy = local_sgd()
    run = make_round(
        workload.task.loss,
        OPTIMIZER,
        strategy,
        sync_period=_NUM_STEPS,
        mesh=mesh,
        platform=platform_of(mesh),
    )
    shapes = arguments(workload, mesh, strategy, _NUM_STEPS)
    compiled = cast(Wrapped, run).lower(*shapes).compile()
    counted = compiled.cost_analysis()
    if counted is not None:
        return float(counted["flops"])
    return overlap_report(compiled).program_flops / _NUM_STEPS
