"""Kinds of work timed in turns: each once, then each again in another order.

The speed of a machine wanders, and what ran before leaves its traces in caches. Both
fall on all kinds alike.
"""

import random
import time
from collections.abc import Callable, Mapping

NUM_WARM = 2  # calls of every kind that compile and settle

Samples = dict[str, list[float]]
"""Seconds of every call, by kind. Under the same names with "_cpu" appended: CPU
seconds of this process; with "_bytes": what its host sent, meetings included."""


def take_turns(
    kinds: Mapping[str, Callable[[], None]],
    repetitions: int,
    meet: Callable[[], None] = lambda: None,
    sent: Callable[[], int] = lambda: 0,
    watch: Callable[[int, int], None] = lambda done, num: None,
) -> Samples:
    """Times calls of every kind.

    Args:
      kinds: what is timed, by name.
      repetitions: how often each is timed.
      meet: waits for the other processes; called before and after each call.
      sent: gives the bytes that this host has sent so far.
      watch: called with how many of how many calls are done.
    """
    samples: Samples = {
        f"{kind}{unit}": [] for unit in ("", "_cpu", "_bytes") for kind in kinds
    }
    chance = random.Random(0)  # the same order in all processes
    turns = [
        (repetition, kind)
        for repetition in range(-NUM_WARM, repetitions)
        for kind in chance.sample(list(kinds), len(kinds))
    ]
    for done, (repetition, kind) in enumerate(turns):
        watch(done, len(turns))
        meet()
        before, cpu, began = sent(), time.process_time(), time.perf_counter()
        kinds[kind]()
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
        meet()  # everything has arrived
        if repetition >= 0:
            samples[kind].append(seconds)
            samples[f"{kind}_cpu"].append(cpu)
            samples[f"{kind}_bytes"].append(sent() - before)
    return samples
