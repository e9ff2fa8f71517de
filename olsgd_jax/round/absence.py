"""The state of a worker after a round that it missed.

P is the set of workers that are present, each for the whole round.

    a worker's own state         is updated if the worker is in P
    state that workers share     is updated on every worker if P is not empty

A worker's own state is its model, its optimizer and model state, and the fields that
its strategy lists in `own`. Shared are the other fields of the strategy's state
(anchor, velocity), and what the strategy lists in `common`: the model, if the
strategy's equations have only one. So the anchor is always the same on all workers, and
a returning worker resumes from its own model and is pulled toward the current anchor.
If P is empty, only the round number changes. For the state of a reduction, see
`participation.arrived` and `difference`.

An optimizer's schedule counts the worker's own steps. A strategy's schedule counts the
steps of all rounds in which any worker was present.
"""

from jaxtyping import Array, Float

from olsgd_jax.round.local_steps import WorkerState
from olsgd_jax.round.participation import choose
from olsgd_jax.strategies.base import Strategy
from olsgd_jax.types import Present


def keep_absent(
    strategy: Strategy,
    before: WorkerState,
    after: WorkerState,
    present: Present,
    num_present: Float[Array, ""],
) -> WorkerState:
    """Undoes a round's updates to the own state of an absent worker.

    Args:
      strategy: says which state is shared.
      before: the worker's state at the start of the round.
      after: its state at the end, as if it had been present.
      present: whether it was present.
      num_present: p, the number of workers that were.
    """
    anyone = num_present > 0

    def moved(name: str):
        moves = anyone if name in strategy.common else present
        return choose(moves, getattr(after, name), getattr(before, name))

    old, new = before.strategy_state, after.strategy_state
    strategy_state = choose(anyone, new, old)
    if strategy.own:
        own = {
            name: choose(present, getattr(new, name), getattr(old, name))
            for name in strategy.own
        }
        strategy_state = strategy_state._replace(**own)
    return after._replace(
        params=moved("params"),
        model_state=moved("model_state"),
        opt_state=moved("opt_state"),
        strategy_state=strategy_state,
    )
