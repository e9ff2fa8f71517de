"""The host driver: for CPUs, where nothing overlaps inside one program.

As in the paper, a second thread averages the models while the first runs the local
steps. The mean is made bucket by bucket, and the first thread mixes the buckets that
have arrived while the others are in flight. A process averages one bucket at a time, so
all processes average them in the same order. The thread ends with its round.

A program copies its results, so each program returns only what it changes.

In a trace of `jax.profiler`, the programs are named after their part of the round:
"local steps", "mean" and "mix", the last two once for every bucket.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from typing import Protocol, runtime_checkable

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


@runtime_checkable
class Annotate(Protocol):
    """Marks the time in which a part of a round runs."""

    def __call__(self, part: str, /) -> AbstractContextManager:
        """Gives a context that is left once the part's result is there.

        Means of a delayed strategy enter it in a thread of their own.
        """
        ...


def trace(part: str) -> AbstractContextManager:
    """Names a part in the traces of `jax.profiler`."""
    return jax.profiler.TraceAnnotation(part)


def host(
    parts: RoundParts,
    reduction: Reduction,
    check: Callable[[WorkerState, Batch], None],
    mesh: Mesh | None,
    mapping: Mapping | None,
    annotate: Annotate = trace,
) -> Callable[..., tuple[WorkerState, RoundRecord]]:
    """Builds a round from its parts.

    The parts of a blocking strategy run one after the other. That hides nothing, but
    shows how long each takes.

    Args:
      parts: the parts of one worker's round.
      reduction: how messages become a mean.
      check: raises if state and batches do not match.
      mesh: the workers' mesh, or None for lanes of one device.
      mapping: how the workers' code is mapped.
      annotate: marks the time of each part.

    >>> from contextlib import contextmanager
    >>> import jax.numpy as jnp, optax
    >>> from olsgd_jax import exact, init_state, local_sgd, plain_loss
    >>> from olsgd_jax.drivers import host
    >>> from olsgd_jax.round import make_round_parts
    >>> @contextmanager
    ... def tell(part):
    ...     yield
    ...     print(part)
    >>> loss, sgd = plain_loss(lambda params, batch: params @ batch), optax.sgd(1)
    >>> parts = make_round_parts(loss, sgd, local_sgd(), "local", exact())
    >>> run_round = host(parts, exact(), lambda *_: None, None, None, annotate=tell)
    >>> state = init_state(jnp.array([3.0]), sgd, local_sgd(), num_workers=2)
    >>> state, _ = run_round(state, jnp.array([[[1.0]], [[2.0]]]))
    local steps
    mean
    mix
    """

    # An empty program: it checks while it is traced.
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

    def run(part: str, program: Callable, *args: ArrayTree) -> ArrayTree:
        with annotate(part):
            return jax.block_until_ready(program(*args))

    def overlap_round(
        state: WorkerState, batches: Batch, present: Present | None = None
    ):
        checked(state, batches)
        check_present(present, state)
        present = unless_all(present)
        means, mixes = programs(state, present)
        with ThreadPoolExecutor(1, thread_name_prefix="olsgd_jax-mean") as thread:

            def send(models: WorkerState) -> list[Future]:
                return [
                    thread.submit(run, "mean", mean, models, present) for mean in means
                ]

            pending = send(state) if parts.is_delayed else []
            try:
                stepped, losses = run(
                    "local steps", local_steps, state, batches, present
                )
                end = state._replace(**stepped)
                if not parts.is_delayed:
                    pending = send(end)
                    wait(pending)
                mixed, sent = {}, []
                for mix, bucket in zip(mixes, pending, strict=True):
                    sent.append(bucket.result())
                    mixed |= run("mix", mix, state, stepped, sent, present)
            except BaseException:
                # Without this, leaving the context would wait for all other buckets.
                thread.shutdown(wait=False, cancel_futures=True)
                raise
        return put_mixed(end, mixed, present), RoundRecord(losses)

    return overlap_round
