"""Runs of `race`: a search for the learning rate, and training against the clock.

The clock is that of `train` on process 0: the wall-clock time of rounds. It stands
still during compilation and while models are evaluated.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import TypedDict

import jax
import numpy as np
from jax.experimental import multihost_utils

from experiments.measured.measure_all import conditions
from experiments.processes.host_processes import sent_bytes
from olsgd_jax.training import Config, Record, build, describe, train

SEARCH_RECORDS = 5
"""Evaluations of a run that tries a learning rate; the second half of them counts."""


class Point(TypedDict):
    """An evaluation of the consensus."""

    round: int  # rounds so far
    step: int  # local steps so far, of each worker
    seconds: float  # spent in rounds so far
    accuracy: float
    train_loss: float


def search(config: Config, rates: Sequence[float]) -> dict[str, float | None]:
    """Tries learning rates in short runs in this process, a device for every worker.

    The trajectories are those of workers on hosts.

    Returns:
      The mean test accuracy over the second half of a run, by learning rate; None for a
      rate that diverges.
    """
    found: dict[str, float | None] = {}
    for rate in rates:
        short = dataclasses.replace(
            config,
            learning_rate=rate,
            num_rounds=SEARCH_RECORDS * config.evaluate_every,
        )
        try:
            accuracies = [record.test_accuracy for record in train(short)]
            found[f"{rate:g}"] = float(np.mean(accuracies[SEARCH_RECORDS // 2 :]))
        except FloatingPointError:
            found[f"{rate:g}"] = None
        jax.clear_caches()  # no other run uses these programs
    return found


def best_rate(found: dict[str, float | None]) -> float:
    """Picks the learning rate with the highest accuracy; the smallest one of a tie."""
    finished = {rate: x for rate, x in found.items() if x is not None}
    if not finished:
        raise ValueError(
            f"learning_rates must hold one that does not diverge, got {list(found)}"
        )
    return min(map(float, finished), key=lambda rate: (-finished[f"{rate:g}"], rate))


def race(config: Config, target: float, limit: float) -> dict:
    """Trains in one of several processes until it reaches the target, or the limit.

    Args:
      config: options of the run.
      target: test accuracy at which the run ends.
      limit: seconds on the clock at which it is cut off.

    Returns:
      What a record says about the run: its evaluations, how it ended, and what a round
      takes and sends.
    """
    components = build(config)
    alone = _without_communication(config)
    points: list[Point] = []
    outcome, before = "cut off", sent_bytes()
    try:
        for record in train(config, components):
            points.append(_point(record))
            if points[-1]["accuracy"] >= target:
                outcome = "reached"
            if outcome == "reached" or points[-1]["seconds"] >= limit:
                break
    except FloatingPointError:
        outcome = "diverged"
    sent = sent_bytes() - before - len(points) * alone["sent"]
    num_rounds = points[-1]["round"] if points else math.nan
    facts = describe(config, components)
    return {
        "outcome": outcome,
        "points": points,
        "num_parameters": facts.num_parameters,
        "payload_bytes_per_round": facts.bytes_per_round,
        # Training starts with a round that is discarded.
        "sent_bytes_per_round": round(sent / (num_rounds + 1)),
        "seconds_per_round_alone": alone["seconds"],
        **conditions(),
    }


def _without_communication(config: Config) -> dict[str, float]:
    """Measures rounds that send nothing: their seconds, and what an evaluation sends.

    Models are averaged to be evaluated, off the clock.
    """
    num = config.evaluate_every
    silent = dataclasses.replace(
        config, reduction="send_nothing", reduction_args=None, num_rounds=3 * num
    )
    sent, seconds = [], []
    for record in train(silent):
        seconds.append(_point(record)["seconds"])
        sent.append(sent_bytes())
    return {"seconds": (seconds[2] - seconds[0]) / (2 * num), "sent": sent[2] - sent[1]}


def _point(record: Record) -> Point:
    """Takes the clock of process 0, so that all processes end a run together."""
    seconds = multihost_utils.broadcast_one_to_all(np.float32(record.seconds))
    return Point(
        round=record.round,
        step=record.step,
        seconds=round(float(seconds), 4),
        accuracy=record.test_accuracy,
        train_loss=record.train_loss,
    )
