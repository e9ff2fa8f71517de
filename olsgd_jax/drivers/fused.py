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

    Donation lets the next state take the memory of the last, so a round needs one
    copy of the state; the state that was passed in is gone afterwards.
    """
    compiled = jax.jit(run, donate_argnums=0, compiler_options=compiler_options)

    def overlap_round(
        state: WorkerState, batches: Batch, present: Present | None = None
    ):
        check_present(present, state)
        return compiled(state, batches, unless_all(present))

    # As compiled functions have it, for those who read the program.
    overlap_round.__dict__["lower"] = compiled.lower
    return overlap_round
