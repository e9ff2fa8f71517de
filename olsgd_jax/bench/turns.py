"""Times several pieces of work in turns.

Other load on the machine then slows all of them alike. Their order changes with every
repetition, and is the same in all processes. Each one starts when all processes are
ready, and ends when the last process is done.
"""

import random
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import numpy as np
from jax.experimental import multihost_utils
from jaxtyping import Float

NUM_WARM = 2
"""Repetitions for compilation and warm-up, which do not count."""

Samples = Float[np.ndarray, " repetitions"]
"""Seconds that one piece of work took in each repetition."""


class Quartiles(NamedTuple):
    """Quartiles of samples; half of them lie between the first and the third."""

    first: float
    median: float
    third: float


def quartiles(samples: Samples) -> Quartiles:
    """Summarises samples.

    >>> quartiles(np.array([3.0, 1.0, 2.0, 5.0, 4.0]))
    Quartiles(first=2.0, median=3.0, third=4.0)
    """
    return Quartiles(*(float(x) for x in np.quantile(samples, (0.25, 0.5, 0.75))))


def take_turns(
    works: Mapping[str, Callable[[], object]],
    repetitions: int,
    meet: Callable[[], None],
    advance: Callable[[], None],
) -> dict[str, Samples]:
    """Times pieces of work in turns.

    Args:
      works: functions to time, by name; each returns when its work is done.
      repetitions: how often each is timed.
      meet: waits for all processes.
      advance: called after each piece of work, off the clock.

    >>> calls = []
    >>> works = {name: lambda name=name: calls.append(name) for name in "ab"}
    >>> samples = take_turns(works, 3, meet=lambda: None, advance=lambda: None)
    >>> len(samples["a"]), sorted(calls) == 5 * ["a"] + 5 * ["b"]
    (3, True)
    """
    names = list(works)
    seconds = np.zeros((len(names), repetitions))
    chance = random.Random(0)
    for repetition in range(-NUM_WARM, repetitions):
        for number in chance.sample(range(len(names)), len(names)):
            meet()
            began = time.perf_counter()
            works[names[number]]()
            if repetition >= 0:
                seconds[number, repetition] = time.perf_counter() - began
            advance()
    if jax.process_count() > 1:
        seconds = np.asarray(multihost_utils.process_allgather(seconds)).max(axis=0)
    return dict(zip(names, seconds, strict=True))
