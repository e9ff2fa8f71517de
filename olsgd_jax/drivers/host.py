"""The host driver: for CPUs, where nothing overlaps inside of one program.

A round is three programs. A second thread runs the mean while the first runs the local
steps, as the paper does it; then the first mixes. Every process takes part in one mean
at a time, so all of them meet in the same order, and the thread ends with its round.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import jax
from jax.sharding import Mesh

from olsgd_jax.drivers.forms import flatten, unflatten
from olsgd_jax.local import WorkerState
from olsgd_jax.placement import batch_shardings, place, state_shardings
from olsgd_jax.round import RoundRecord
from olsgd_jax.round_parts import RoundParts
from olsgd_jax.types import ArrayTree, Batch, Mapping, Mean
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

    # A program of nothing: what it checks, it checks when it is traced.
    checked = jax.jit(check)
    steps_of_all = on_workers(parts.local_steps, mesh, mapping)

    def mean_of_start(start: WorkerState) -> ArrayTree:
        return mean(flatten(parts.models(start), mesh))

    def mix_worker(start: WorkerState, end: WorkerState, sent: ArrayTree):
        return parts.mix(start, end, unflatten(sent, parts.models(start), mesh))

    mean_of_models = jax.jit(on_workers(mean_of_start, mesh, mapping))
    mix_all = on_workers(mix_worker, mesh, mapping)

    @jax.jit
    def local_steps(start: WorkerState, batches: Batch):
        batches = place(batches, batch_shardings(batches, mesh))
        return steps_of_all(start, batches)[:2]

    # Nothing is donated: in place, a mix first copies what it overwrites.
    @jax.jit
    def mix(start: WorkerState, end: WorkerState, sent: ArrayTree) -> WorkerState:
        state = mix_all(start, end, sent)
        return place(state, state_shardings(state, mesh))

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
