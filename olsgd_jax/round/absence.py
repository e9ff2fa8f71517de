"""What a worker that misses a round has after it.

P are the workers present in a round; whoever is in P is in it for the whole round.

    what is a worker's own       moves if the worker is in P
    what all workers share       moves on every worker if anyone is in P

A worker's own are its model, optimizer state, model state, what its reduction keeps,
and what its strategy names in `own`. Shared is all else that the strategy keeps
(anchor, velocity), and what it names in `common`: the model, where its equations know
but one. So the anchor is the same on all workers at all times, and a returning worker
resumes from its own model and is pulled toward the current anchor. Where P is empty
nothing moves but the number of the round, which all workers count.

A schedule goes by the steps of the worker's own optimizer, and in a strategy by those
of all rounds in which anyone was present.
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
    """Takes back what a round does to a worker that was absent.

    Args:
      strategy: says what is shared.
      before: the worker's state as the round began.
      after: its state at the end, as if it had been present.
      present: whether it was.
      num_present: p.
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
        reduction_state=moved("reduction_state"),
    )
