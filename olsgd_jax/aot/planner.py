"""The planner: what to expect of each strategy on hardware that you do not have.

A round is compiled for the target, which gives the flops of a local step. The figures
of the hardware turn flops into seconds, and the model of time (`timing`) predicts the
round.

    step              flops / (peak flops × utilisation)
    mean              a ring or a tree over all workers, whichever is faster
    compressed mean   two exchanges of each of ⌊τ / 2⌋ fragments, one in every step
    two means         the sum of a part of either in every step, or an exchange of one

Fewer bits allow a shorter sync period: for every reduction, the plan has the smallest
one that hides the mean of the models.
"""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

from olsgd_jax._checks import check_choice, check_count, check_number
from olsgd_jax.aot.hardware import HARDWARE
from olsgd_jax.aot.step_cost import step_flops
from olsgd_jax.aot.targets import target as mesh_of
from olsgd_jax.aot.workloads import OPTIMIZER, WORKLOADS, Workload, arguments
from olsgd_jax.drivers.platforms import platform_of
from olsgd_jax.reductions import REDUCTIONS, SENDING
from olsgd_jax.reductions.base import Reduction
from olsgd_jax.round.worker_round import make_worker_round
from olsgd_jax.strategies import STRATEGIES
from olsgd_jax.strategies.local_sgd import local_sgd
from olsgd_jax.timing import (
    Exchanges,
    RingOrTree,
    RoundTime,
    Setting,
    round_time,
    smallest_hiding_period,
    with_stragglers,
)
from olsgd_jax.timing.network import Link
from olsgd_jax.timing.payload import payload_bytes
from olsgd_jax.training.components import build_strategy
from olsgd_jax.training.config import Config
from olsgd_jax.types import Params
from olsgd_jax.workers.axis import WORKERS

DELAYED = "overlap_local_sgd"  # the strategy whose mean the sync period has to hide


class Expected(NamedTuple):
    """What to expect of one strategy.

    >>> import numpy as np
    >>> from olsgd_jax.aot import Expected
    >>> from olsgd_jax.timing import RoundTime
    >>> time = RoundTime(seconds=2.0, compute=np.array([1.0]))
    >>> Expected("local_sgd", False, 4, bytes_per_round=400, time=time).time.utilisation
    0.5
    """

    strategy: str
    stream: bool
    sync_period: int
    bytes_per_round: float  # payload of one worker
    time: RoundTime
    reduction: str = "exact"


class Reduced(NamedTuple):
    """What to expect of a delayed strategy with one reduction.

    >>> import numpy as np
    >>> from olsgd_jax.aot import Reduced
    >>> from olsgd_jax.timing import RoundTime
    >>> time = RoundTime(seconds=2.0, compute=np.array([1.0]))
    >>> Reduced("int8", 6, sync_period=4, bytes_per_round=104, time=time).is_hidden
    False
    """

    reduction: str
    hiding_period: int | None  # the smallest that hides the mean; None: none does
    sync_period: int
    bytes_per_round: float  # payload of one worker
    time: RoundTime

    @property
    def is_hidden(self) -> bool:
        """Whether the local steps cover the mean."""
        return self.hiding_period is not None and (
            self.hiding_period <= self.sync_period
        )


class Plan(NamedTuple):
    """What to expect on a target.

    >>> from olsgd_jax.aot import Plan
    >>> made_up = Plan(
    ...     "h100:1x16x8", num_workers=128, parameter_bytes=400, step_flops=None,
    ...     step_seconds=0.1, mean_seconds=0.3, hiding_period=3, expected=(),
    ... )
    >>> made_up.hiding_period
    3
    """

    target: str
    num_workers: int
    parameter_bytes: float
    step_flops: float | None  # per device; None if the step's time was given
    step_seconds: float
    mean_seconds: float  # time of the mean of the models
    hiding_period: int  # the smallest sync period that hides that mean
    expected: tuple[Expected, ...]
    fragment_seconds: float = 0.0  # time of one fragment's mean, if streamed
    reductions: tuple[Reduced, ...] = ()

    @property
    def most_bits(self) -> Reduced | None:
        """The reduction that sends the most of those whose mean is hidden, if any."""
        hidden = [x for x in self.reductions if x.is_hidden]
        return max(hidden, key=lambda x: x.bytes_per_round, default=None)


def plan(
    target: str,
    model: str | Workload = "resnet18",
    *,
    bandwidth: float,
    latency: float = 50e-6,
    sync_period: int | None = None,
    data: int = 1,
    fsdp: int = 1,
    utilisation: float = 0.4,
    stragglers: float = 0.0,
    step_seconds: float | None = None,
    reductions: Sequence[str] = SENDING,
) -> Plan:
    """Predicts the round time of each strategy, and of each reduction, on a target.

    Strategies are planned with the exact mean, `sync_sgd` also as PowerSGD (low rank).
    Reductions are planned with a delayed strategy.

    Args:
      target: see `olsgd_jax.aot.target`.
      model: mlp, resnet18 or transformer, or a `Workload` with a module of your own.
      bandwidth: bandwidth of the slowest link between workers, in bytes per second.
      latency: latency of a message on that link, in seconds.
      sync_period: τ for all strategies; by default the smallest that hides the mean.
      data: devices of a worker that share its batches.
      fsdp: devices of a worker that share its model as well.
      utilisation: fraction of the peak flops that a local step achieves.
      stragglers: mean random extra time of a local step, as a multiple of its time.
      step_seconds: measured time of a local step; with it, nothing is compiled.
      reductions: names of the reductions to plan; by default all that send something.

    >>> from olsgd_jax.aot import plan
    >>> plan("v5e", "vgg", bandwidth=1.25e9)
    Traceback (most recent call last):
    ValueError: model must be one of mlp, resnet18, transformer, got 'vgg'
    """
    check_number("utilisation", utilisation, 0, 1, "(]")
    if sync_period is not None:
        check_count("sync_period", sync_period)
    if not reductions:
        raise ValueError(
            "reductions must name at least one, got none; leave it out for all"
        )
    for name in reductions:
        check_choice("reductions", name, SENDING)
    if isinstance(model, str):
        check_choice("model", model, tuple(WORKLOADS))
        model = WORKLOADS[model]
    mesh = mesh_of(target, data=data, fsdp=fsdp)
    flops = None
    if step_seconds is None:
        flops = step_flops(model, mesh)
        peak = HARDWARE[target.partition(":")[0]].peak_flops
        step_seconds = flops / (peak * utilisation)
    num_workers = mesh.shape[WORKERS]
    compute = with_stragglers(step_seconds, stragglers)
    network = RingOrTree(bandwidth, latency)

    def setting_of(
        name: str, sync_period: int, stream: bool = False, by: str = "exact"
    ) -> Setting:
        strategy = build_strategy(Config(strategy=name, num_workers=num_workers))
        reduction = REDUCTIONS[by]()
        worker_round = make_worker_round(
            model.task.loss, OPTIMIZER, strategy, reduction=reduction
        )
        shapes = arguments(model, mesh, strategy, sync_period, reduction)
        num_bytes = payload_bytes(worker_round, *shapes, num_workers=num_workers)
        return Setting(
            strategy, sync_period, num_bytes, num_workers, compute, network, stream
        )

    delayed = setting_of(DELAYED, sync_period=1)
    hiding_period = smallest_hiding_period(delayed)
    assert hiding_period is not None  # because the mean is delayed and not streamed
    chosen = hiding_period if sync_period is None else sync_period
    settings = [(setting_of(name, chosen), "exact") for name in STRATEGIES]
    power_sgd = setting_of("sync_sgd", chosen, by="low_rank")
    streamed = setting_of(DELAYED, chosen, stream=True)
    settings += [(power_sgd, "low_rank"), (streamed, "exact")]
    state, _ = arguments(model, mesh, delayed.strategy, chosen)

    def reduced(name: str) -> Reduced:
        reduction = REDUCTIONS[name]()

        def mean(models: Params) -> Params:
            message = reduction.part.take(models)
            return reduction.reduce(message, reduction.init(message))[0]

        num_bytes = payload_bytes(mean, state.params, num_workers=num_workers)
        setting = dataclasses.replace(
            delayed, sync_period=chosen, bytes_per_round=num_bytes
        )
        period = smallest_hiding_period(setting)
        if reduction.is_in_two:
            is_exchanged = platform_of(mesh, reduction).streamed is not None
            setting, period = _in_steps(setting, reduction, network, is_exchanged)
        num_bytes = setting.bytes_per_round
        return Reduced(name, period, chosen, num_bytes, round_time(setting))

    return Plan(
        target,
        num_workers,
        delayed.bytes_per_round,
        flops,
        step_seconds,
        delayed.mean_seconds,
        hiding_period,
        tuple(
            Expected(
                x.strategy.name,
                x.stream,
                x.sync_period,
                x.bytes_per_round,
                round_time(x),
                reduction,
            )
            for x, reduction in settings
        ),
        streamed.mean_seconds,
        tuple(map(reduced, dict.fromkeys(reductions))),
    )


def _in_steps(
    setting: Setting, reduction: Reduction, link: Link, is_exchanged: bool
) -> tuple[Setting, int | None]:
    """Models a mean that takes two collectives in turn, and is spread over the steps.

    If it is made of two means, their parts count as equally large.

    Returns:
      The setting, and the smallest sync period whose steps cover what they send. It is
      even with exchanges: that of the last of an odd number of steps is not used.
    """
    sync_period, whole, steps_per_part = setting.sync_period, setting.network, 1
    network = whole
    if is_exchanged:
        whole, steps_per_part = Exchanges(link.bandwidth, link.latency), 2
        # Half of the messages of a mean in every step, and half of a part's bytes.
        network = dataclasses.replace(whole, latency=link.latency / 2)
    streamed = dataclasses.replace(setting, network=network, stream=True)
    num_parts = 1 if reduction.two_means is None else 2
    shortest = steps_per_part * num_parts
    period = smallest_hiding_period(streamed)
    if period is not None:
        period = max(shortest, -(-period // steps_per_part) * steps_per_part)
    if sync_period < shortest:  # all of it is sent before, or after, the steps
        blocking = dataclasses.replace(setting, strategy=local_sgd(), network=whole)
        return blocking, period
    used = sync_period // steps_per_part * steps_per_part
    num_bytes = setting.bytes_per_round * sync_period / used
    return dataclasses.replace(streamed, bytes_per_round=num_bytes), period
