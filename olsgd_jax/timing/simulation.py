"""Simulation: runs the recurrence of rounds for all workers and repetitions at once.

Worker i starts round r at sᵢ(r), its local steps take Cᵢ(r), and one mean takes T.

    blocking   sᵢ(r + 1) = maxⱼ (sⱼ(r) + Cⱼ(r)) + T
    delayed    M(r)      = maxⱼ sⱼ(r) + T
               sᵢ(r + 1) = max(sᵢ(r) + Cᵢ(r), M(r))

M(r) is when the mean of the models at the start of round r arrives. A delayed worker
waits only until the others have started their round, not until they have finished it,
so fast steps can make up for slow ones. The network carries one mean at a time. This
needs no equation, since no worker starts round r before M(r − 1).

If every local step has a mean, r counts steps.

Reference: arXiv:2002.09539 (Overlap Local-SGD, section 2).
"""

import numpy as np
from jaxtyping import Float

from olsgd_jax._checks import check_count
from olsgd_jax.timing.setting import Setting
from olsgd_jax.timing.times import RoundTime

Times = Float[np.ndarray, "repetitions workers"]


def blocking(start: Times, compute: Times, mean_seconds: float) -> Times:
    """Gives when workers start the next round if the mean waits for the steps."""
    last = (start + compute).max(axis=1, keepdims=True)
    return np.broadcast_to(last + mean_seconds, start.shape)


def delayed(start: Times, compute: Times, mean_seconds: float) -> Times:
    """Gives when workers start the next round if the mean travels during the steps."""
    arrival = start.max(axis=1, keepdims=True) + mean_seconds
    return np.maximum(start + compute, arrival)


def simulate(
    setting: Setting, *, num_rounds: int = 100, repetitions: int = 10, seed: int = 0
) -> RoundTime:
    """Simulates rounds; all workers start at the same time.

    Args:
      setting: what the time depends on.
      num_rounds: consecutive rounds to simulate.
      repetitions: independent simulations; the result is their mean.
      seed: seed of the simulation. Strategies with the same number of means per round
        draw the same compute times.

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
