"""Simulation: rounds by their recurrence, for all workers and repetitions at once.

Worker i starts round r at sᵢ(r), its local steps take Cᵢ(r), and one mean takes T.

    blocking   sᵢ(r + 1) = maxⱼ (sⱼ(r) + Cⱼ(r)) + T
    delayed    M(r)      = maxⱼ sⱼ(r) + T
               sᵢ(r + 1) = max(sᵢ(r) + Cᵢ(r), M(r))

M(r) is when the mean of the models that round r began with is there. A delayed worker
does not wait for the others' local steps, only for the start of their round: a slow
step of one is made up for by a fast one. The network has one mean at a time; this
needs no line of its own, as no worker starts round r before M(r − 1).

With a mean for every local step, r counts steps.

Reference: arXiv:2002.09539 (Overlap Local-SGD, section 2).
"""

import numpy as np
from jaxtyping import Float

from olsgd_jax._checks import check_count
from olsgd_jax.timing.setting import Setting
from olsgd_jax.timing.times import RoundTime

Times = Float[np.ndarray, "repetitions workers"]


def blocking(start: Times, compute: Times, mean_seconds: float) -> Times:
    """Gives when workers start the next round if the mean waits for their steps."""
    last = (start + compute).max(axis=1, keepdims=True)
    return np.broadcast_to(last + mean_seconds, start.shape)


def delayed(start: Times, compute: Times, mean_seconds: float) -> Times:
    """Gives when workers start the next round if the mean travels during the steps."""
    arrival = start.max(axis=1, keepdims=True) + mean_seconds
    return np.maximum(start + compute, arrival)


def simulate(
    setting: Setting, *, num_rounds: int = 100, repetitions: int = 10, seed: int = 0
) -> RoundTime:
    """Plays rounds through, from a common start of all workers.

    Args:
      setting: what is played.
      num_rounds: in a row.
      repetitions: independent of each other; the result is their mean.
      seed: seed of all chance. Strategies with equally many means per round get the
        same times.

    >>> from olsgd_jax import local_sgd, overlap_local_sgd
    >>> from olsgd_jax.timing import RandomPauses, Ring, Setting, simulate
    >>> for strategy in (local_sgd(), overlap_local_sgd(pullback=0.6)):
    ...     setting = Setting(
    ...         strategy, sync_period=4, bytes_per_round=4e8, num_workers=16,
    ...         compute=RandomPauses(0.1, probability=0.1, pause=0.5),
    ...         network=Ring(bandwidth=1.25e9, latency=1e-4),
    ...     )
    ...     time = simulate(setting, seed=1)
    ...     print(f"{strategy.name}: {time.utilisation:.0%}")
    local_sgd: 33%
    overlap_local_sgd: 61%
    """
    check_count("num_rounds", num_rounds)
    check_count("repetitions", repetitions)
    rng = np.random.default_rng(seed)
    advance = delayed if setting.is_delayed else blocking
    mean_seconds, num_steps = setting.mean_seconds, setting.steps_per_mean
    start = np.zeros((repetitions, setting.num_workers))
    computed = np.zeros_like(start)
    for _ in range(num_rounds * setting.means_per_round):
        compute = setting.compute.sample(rng, start.shape, num_steps)
        start = advance(start, compute, mean_seconds)
        computed += compute
    seconds = start.max(axis=1).mean() / num_rounds
    return RoundTime(float(seconds), computed.mean(axis=0) / num_rounds)
