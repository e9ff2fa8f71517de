"""The host driver: for CPUs, where nothing overlaps inside of one program.

A second thread averages the models, bucket by bucket, while the first runs the local
steps, as the paper does it. Then the first mixes what has arrived while the rest is on
its way. Every process takes part in one mean at a time, so all of them meet in the same
order, and the thread ends with its round.

What a program hands back it has copied, so each is asked only for what it changes.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import jax
from jax.sharding import Mesh

from olsgd_jax.drivers.host_programs import make_programs, put_mixed
from olsgd_jax.reductions.base import Reduction
from olsgd_jax.round.local_steps import WorkerState
from olsgd_jax.round.participation import unless_all
from olsgd_jax.round.round_parts import RoundParts
from olsgd_jax.round.state import check_present
from olsgd_jax.round.worker_round import RoundRecord
from olsgd_jax.types import ArrayTree, Batch, Mapping, Present
from olsgd_jax.workers.axis import on_workers
from olsgd_jax.workers.sharding import batch_shardings, place, state_shardings


def host(
    parts: RoundParts,
    reduction: Reduction,
    check: Callable[[WorkerState, Batch], None],
    mesh: Mesh | None,
    mapping: Mapping | None,
) -> Callable[..., tuple[WorkerState, RoundRecord]]:
    """Makes a round of a delayed strategy out of its parts.

    Args:
      parts: the parts of one worker's round.
      reduction: how messages become a mean.
      check: raises where state and batches do not fit.
      mesh: where the workers are.
      mapping: how their code is mapped.
    """

    # A program of nothing: what it checks, it checks when it is traced.
    checked = jax.jit(check)

    def worker_steps(start: WorkerState, batches: Batch, present: Present | None):
        steps = parts.local_steps(start, batches, present=present)
        return {name: getattr(steps.end, name) for name in parts.stepped}, steps.losses

    steps_of_all = on_workers(worker_steps, mesh, mapping)

    @jax.jit
    def local_steps(start: WorkerState, batches: Batch, present: Present | None):
        batches = place(batches, batch_shardings(batches, mesh))
        stepped, losses = steps_of_all(start, batches, present)
        return place(stepped, state_shardings(stepped, mesh)), losses

    programs = make_programs(parts, reduction, mesh, mapping)

    def overlap_round(
        state: WorkerState, batches: Batch, present: Present | None = None
    ):
        checked(state, batches)
        check_present(present, state)
        present = unless_all(present)
        means, mixes = programs(state, present)
        with ThreadPoolExecutor(1, thread_name_prefix="olsgd_jax-mean") as thread:
            pending = [thread.submit(_wait_for, x, state, present) for x in means]
            try:
                stepped, losses = _wait_for(local_steps, state, batches, present)
                mixed, sent = {}, []
                for mix, bucket in zip(mixes, pending, strict=True):
                    sent.append(bucket.result())
                    mixed |= _wait_for(mix, state, stepped, sent, present)
            except BaseException:
                # Or leaving would wait for all the buckets that are left.
                thread.shutdown(wait=False, cancel_futures=True)
                raise
        end = state._replace(**stepped)
        return put_mixed(end, mixed, present), RoundRecord(losses)

    return overlap_round


def _wait_for(program: Callable, *args: ArrayTree) -> ArrayTree:
    return jax.block_until_ready(program(*args))
