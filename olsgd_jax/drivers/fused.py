"""The fused driver: a round is one compiled program, and its state is donated."""

from collections.abc import Callable

import jax

from olsgd_jax.round.local_steps import WorkerState
from olsgd_jax.round.participation import unless_all
from olsgd_jax.round.state import check_present
from olsgd_jax.types import Batch, Present


def fused(
    run: Callable[..., tuple],
    compiler_options: dict[str, str | bool | int],
) -> Callable:
    """Compiles a round of all workers into one program.

    The state is donated: the next state reuses its memory, so a round needs only one
    copy of the state, and the state that was passed in is invalid afterwards.
    """
    compiled = jax.jit(run, donate_argnums=0, compiler_options=compiler_options)

    def overlap_round(
        state: WorkerState, batches: Batch, present: Present | None = None
    ):
        check_present(present, state)
        return compiled(state, batches, unless_all(present))

    # Like a jitted function, so that overlap_report can read the program.
    overlap_round.__dict__["lower"] = compiled.lower
    return overlap_round
