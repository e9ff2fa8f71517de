"""The fused driver: a round is one compiled program, and its state is donated."""

from collections.abc import Callable

import jax

from olsgd_jax.local import WorkerState
from olsgd_jax.types import Batch


def fused(
    run: Callable[[WorkerState, Batch], tuple],
    compiler_options: dict[str, str | bool | int],
) -> Callable:
    """Compiles a round of all workers into one program.

    Donation lets the next state take the memory of the last, so a round needs one
    copy of the state; the state that was passed in is gone afterwards.
    """
    return jax.jit(run, donate_argnums=0, compiler_options=compiler_options)
