"""The host driver: for CPUs, where nothing overlaps inside of one program.

A round is three programs. A second thread runs the mean while the first runs the local
steps, as the paper does it; then the first mixes. Every process takes part in one mean
at a time, so all of them meet in the same order, and the thread ends with its round.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import jax
from jax.sharding import Mesh

from olsgd_jax.local import WorkerState
from olsgd_jax.round import RoundParts, RoundRecord
from olsgd_jax.types import Batch, Mapping, Mean
from olsgd_jax.workers import on_workers


def host(
    parts: RoundParts,
    mean: Mean,
    check: Callable[[WorkerState, Batch], None],
    mesh: Mesh | None,
    mapping: Mapping | None,
) -> Callable[[WorkerState, Batch], tuple[WorkerState, RoundRecord]]:
    """Makes a round of a delayed strategy out of its parts.

    Args:
      parts: of one worker's round.
      mean: averages a tree over workers.
      check: raises where state and batches do not fit.
      mesh: where the workers are.
      mapping: how their code is mapped.
    """

    def compiled(fn: Callable, donate: tuple[int, ...] = ()) -> Callable:
        return jax.jit(on_workers(fn, mesh, mapping), donate_argnums=donate)

    # A program of nothing: what it checks, it checks when it is traced.
    checked = jax.jit(check)
    local_steps = compiled(lambda start, batches: parts.local_steps(start, batches)[:2])
    mean_of_models = compiled(lambda start: mean(parts.models(start)))
    mix = compiled(parts.mix, donate=(1,))

    def overlap_round(state: WorkerState, batches: Batch):
        checked(state, batches)
        with ThreadPoolExecutor(1, thread_name_prefix="olsgd_jax-mean") as thread:
            pending = thread.submit(
                lambda: jax.block_until_ready(mean_of_models(state))
            )
            end, losses = jax.block_until_ready(local_steps(state, batches))
            models = pending.result()
        return mix(state, end, models), RoundRecord(losses)

    return overlap_round
