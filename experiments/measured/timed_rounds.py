"""When the parts of a round begin and end, in one of several processes.

The host driver runs the rounds, and a clock records their parts. A delayed mean and the
mix after it run bucket by bucket; each bucket is recorded separately.

Synchronous SGD averages inside a local step, where no clock can look. The steps here
are plain SGD, where averaging gradients before the step equals averaging models after
it. So its rounds are recorded as τ rounds of Local SGD with one step each.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from experiments.measured.network_rounds import meeting
from experiments.measured.network_work import OPTIMIZER, Work, loss, start, strategy_of
from olsgd_jax import WorkerState, exact, worker_mesh
from olsgd_jax.drivers import host, platform_of
from olsgd_jax.round import make_round_parts
from olsgd_jax.types import Batch

NUM_WARM = 2  # rounds that compile and settle

Spans = list[tuple[int, str, float, float]]
"""Round, part of it, start and end; in seconds, of a clock that processes share."""


def measure(work: Work, num_rounds: int) -> Spans:
    """Records when the parts of some rounds started and ended in this process."""
    mesh = worker_mesh(jax.device_count())
    spans: Spans = []
    number = -NUM_WARM

    @contextmanager
    def note(part: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        spans.append((number, part, began, time.monotonic()))

    run_round, meet = make_timed_round(work, mesh, note), meeting(mesh)
    state, batches = start(work, mesh)
    for number in range(-NUM_WARM, num_rounds):
        if number == 0:
            meet()  # processes start together
        state = run_round(state, batches)
    return [span for span in spans if span[0] >= 0]


def together(workers: Sequence[Spans]) -> list[dict[str, int | str | float]]:
    """Combines the spans of all workers, in seconds from the start of the first."""
    first = min(start for spans in workers for _, _, start, _ in spans)
    return [
        {
            "worker": worker,
            "round": number,
            "part": part,
            "start": start - first,
            "end": end - first,
        }
        for worker, spans in enumerate(workers)
        for number, part, start, end in spans
    ]


def make_timed_round(
    work: Work, mesh: Mesh, annotate: Callable[[str], AbstractContextManager]
) -> Callable[[WorkerState, Batch], WorkerState]:
    """Makes a round whose parts are annotated as they run."""
    is_sync = work.strategy == "sync_sgd"
    shown = work._replace(strategy="local_sgd") if is_sync else work
    strategy, _ = strategy_of(shown, mesh.size)
    gradient = platform_of(mesh).gradient
    parts = make_round_parts(loss, OPTIMIZER, strategy, "local", exact(), gradient)
    run_host = host(parts, exact(), lambda *_: None, mesh, None, annotate)

    def run_round(state: WorkerState, batches: Batch) -> WorkerState:
        # Each step of synchronous SGD is a round.
        steps = jnp.split(batches, work.sync_period, axis=1) if is_sync else [batches]
        for own in steps:
            state, _ = run_host(state, own)
        return state

    return run_round
