"""The host driver: for CPUs, where nothing overlaps inside of one program.

A round is three programs. A second thread runs the mean while the first runs the local
steps, as the paper does it; then the first mixes. Every process takes part in one mean
at a time, so all of them meet in the same order, and the thread ends with its round.

What a program hands back it has copied, so each is asked only for what it changes.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import jax
from jax.sharding import Mesh

from olsgd_jax.drivers.forms import flatten, unflatten
from olsgd_jax.local import WorkerState
from olsgd_jax.placement import batch_shardings, place, state_shardings
from olsgd_jax.presence import unless_all
from olsgd_jax.round import RoundRecord
from olsgd_jax.round_parts import RoundParts
from olsgd_jax.state import check_present
from olsgd_jax.types import ArrayTree, Batch, Mapping, Mean, Present
from olsgd_jax.workers import on_workers

MIXED = ("params", "strategy_state", "model_state", "round")
"""What a mix changes of a state, where all workers are present."""

Fields = dict[str, ArrayTree]


def host(
    parts: RoundParts,
    mean: Mean,
    check: Callable[[WorkerState, Batch], None],
    mesh: Mesh | None,
    mapping: Mapping | None,
) -> Callable[..., tuple[WorkerState, RoundRecord]]:
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

    def worker_steps(start: WorkerState, batches: Batch, present: Present | None):
        steps = parts.local_steps(start, batches, present=present)
        return {name: getattr(steps.end, name) for name in parts.stepped}, steps.losses

    def mean_of_start(start: WorkerState, present: Present | None) -> ArrayTree:
        return mean(flatten(parts.models(start, present), mesh))

    def mix_worker(
        start: WorkerState, stepped: Fields, sent: ArrayTree, present: Present | None
    ):
        models = unflatten(sent, parts.models(start, present), mesh)
        after = parts.mix(start, start._replace(**stepped), models, present)
        mixed = [getattr(after, name) for name in changed_by_mix(present)]
        return in_turns(mixed, _num_params(start))

    steps_of_all = on_workers(worker_steps, mesh, mapping)
    mean_of_models = jax.jit(on_workers(mean_of_start, mesh, mapping))
    mix_all = on_workers(mix_worker, mesh, mapping)

    @jax.jit
    def local_steps(start: WorkerState, batches: Batch, present: Present | None):
        batches = place(batches, batch_shardings(batches, mesh))
        stepped, losses = steps_of_all(start, batches, present)
        return place(stepped, state_shardings(stepped, mesh)), losses

    # Nothing is donated: in place, a mix first copies what it overwrites.
    @jax.jit
    def mix(
        start: WorkerState, stepped: Fields, sent: ArrayTree, present: Present | None
    ) -> list[jax.Array]:
        mixed = mix_all(start, stepped, sent, present)
        return place(mixed, state_shardings(mixed, mesh))

    def overlap_round(
        state: WorkerState, batches: Batch, present: Present | None = None
    ):
        checked(state, batches)
        check_present(present, state)
        present = unless_all(present)
        with ThreadPoolExecutor(1, thread_name_prefix="olsgd_jax-mean") as thread:
            pending = thread.submit(
                lambda: jax.block_until_ready(mean_of_models(state, present))
            )
            stepped, losses = jax.block_until_ready(
                local_steps(state, batches, present)
            )
            models = pending.result()
        end = state._replace(**stepped)
        names = changed_by_mix(present)
        mixed = undo_turns(
            mix(state, stepped, models, present),
            _num_params(state),
            like=[getattr(end, name) for name in names],
        )
        return end._replace(**dict(zip(names, mixed, strict=True))), RoundRecord(losses)

    return overlap_round


def changed_by_mix(present: Present | None) -> tuple[str, ...]:
    """Names what a mix changes of a state."""
    # Of an absent worker, what its steps did to the optimizer is taken back.
    return MIXED if present is None else (*MIXED, "opt_state")


def in_turns(trees: list[ArrayTree], num_params: int) -> list[jax.Array]:
    """Lists arrays so that those of one place in the model follow each other.

    A program computes what it gives in that order, and then finds an array of the
    model, the anchor or the velocity in the cache for all that is made of it.

    >>> in_turns([["x0", "x1"], (["z0", "z1"], ["v0", "v1"])], num_params=2)
    ['x0', 'z0', 'v0', 'x1', 'z1', 'v1']
    """
    leaves = jax.tree.leaves(trees)
    return [leaves[i] for i in _turns(len(leaves), num_params)]


def undo_turns(
    arrays: list[jax.Array], num_params: int, like: list[ArrayTree]
) -> list[ArrayTree]:
    """Undoes `in_turns`; `like` has the structure.

    >>> undo_turns(["x0", "z0", "x1", "z1"], num_params=2, like=[[0, 0], [0, 0]])
    [['x0', 'x1'], ['z0', 'z1']]
    """
    places = _turns(len(arrays), num_params)
    leaves = [
        x for _, x in sorted(zip(places, arrays, strict=True), key=lambda y: y[0])
    ]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def _turns(num_arrays: int, num_params: int) -> list[int]:
    return sorted(range(num_arrays), key=lambda i: i % num_params)


def _num_params(state: WorkerState) -> int:
    return len(jax.tree.leaves(state.params))
