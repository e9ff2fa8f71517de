"""The programs that average and mix the models of a round, bucket by bucket.

A program copies its results, so a mix returns only what it changes.
"""

from collections.abc import Callable, Hashable
from functools import cache, partial
from itertools import chain
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from olsgd_jax.drivers.arrivals import last_needed
from olsgd_jax.drivers.forms.buckets import (
    count_buckets,
    from_buckets,
    to_buckets,
)
from olsgd_jax.reductions.base import Reduction, of_message
from olsgd_jax.round.local_steps import WorkerState
from olsgd_jax.round.participation import Outgoing
from olsgd_jax.round.round_parts import RoundParts
from olsgd_jax.types import ArrayTree, Mapping, Present
from olsgd_jax.workers.axis import on_workers
from olsgd_jax.workers.sharding import place, state_shardings

MIXED = ("params", "strategy_state", "model_state", "round", "reduction_state")
"""Fields of the state that a mix changes if all workers are present."""

Fields = dict[str, ArrayTree]


class Programs(NamedTuple):
    """One mean and one mix for every bucket, to be run in this order."""

    # state, present -> the mean of a bucket, and the reduction's state for it
    means: list[Callable]
    # state, stepped, buckets so far, present -> the leaves that can be mixed, by index
    mixes: list[Callable]


def make_programs(
    parts: RoundParts, reduction: Reduction, mesh: Mesh | None, mapping: Mapping | None
) -> Callable[[WorkerState, Present | None], Programs]:
    """Gives a function that makes the programs for a state; arguments as in `host`.

    >>> import jax.numpy as jnp, optax
    >>> from olsgd_jax import cocod_sgd, exact, init_state, plain_loss
    >>> from olsgd_jax.drivers.host_programs import make_programs
    >>> from olsgd_jax.round import make_round_parts
    >>> loss, sgd = plain_loss(lambda params, batch: params @ batch), optax.sgd(1)
    >>> parts = make_round_parts(loss, sgd, cocod_sgd(), "local", exact())
    >>> state = init_state(jnp.array([3.0]), sgd, cocod_sgd(), num_workers=2)
    >>> [mean], [mix] = make_programs(parts, exact(), None, None)(state, None)
    >>> mean(state, None)[0]
    {'float32': Array([[3.],
           [3.]], dtype=float32)}
    """

    # Two means in turn need the message as it is.
    is_cut = reduction.two_means is None

    def mean_of_bucket(
        start: WorkerState, present: Present | None, *, number: int, num: int
    ) -> Outgoing:
        outgoing = parts.outgoing(start, present)
        buckets = to_buckets(outgoing, num, mesh) if is_cut else [outgoing]
        return of_message(reduction, start.round).reduce(*buckets[number])

    def mix_worker(
        start: WorkerState,
        stepped: Fields,
        sent: list[Outgoing],
        present: Present | None,
    ) -> list[ArrayTree]:
        [arrived] = (
            [from_buckets(sent, parts.outgoing(start, present), mesh)]
            if is_cut
            else sent
        )
        after = parts.mix(start, start._replace(**stepped), arrived, present)
        return [getattr(after, name) for name in changed_by_mix(present)]

    mix_all = on_workers(mix_worker, mesh, mapping)

    @cache
    def programs_for(structure: Hashable, types: tuple) -> Programs:
        state, present = jax.tree.unflatten(structure, types)
        outgoing = on_workers(parts.outgoing, mesh, mapping)
        message, _ = jax.eval_shape(outgoing, state, present)
        num = count_buckets(jax.eval_shape(_of_first_worker, message)) if is_cut else 1
        codes = [partial(mean_of_bucket, number=i, num=num) for i in range(num)]
        means = [jax.jit(on_workers(code, mesh, mapping)) for code in codes]
        buckets = [jax.eval_shape(mean, state, present) for mean in means]
        # The local steps are a loop, so they change no type.
        stepped = {name: getattr(state, name) for name in parts.stepped}
        return Programs(means, _mixes(mix_all, state, stepped, buckets, present, mesh))

    def programs(state: WorkerState, present: Present | None) -> Programs:
        leaves, structure = jax.tree.flatten((state, present))
        return programs_for(structure, tuple(map(jax.typeof, leaves)))

    return programs


def _mixes(
    mix_all: Callable,
    state: ArrayTree,
    stepped: Fields,
    buckets: list[ArrayTree],
    present: ArrayTree,
    mesh: Mesh | None,
) -> list[Callable]:
    """Makes one program per bucket, for all results that need no later bucket.

    The arguments are shapes, not arrays.
    """
    of_buckets = [_each(i, bucket) for i, bucket in enumerate(buckets)]
    arrivals = [_each(0, state), _each(0, stepped), *of_buckets, _each(0, present)]
    whole = jax.make_jaxpr(mix_all)(state, stepped, buckets, present)
    needed = last_needed(whole.jaxpr, list(chain(*arrivals)))

    def make_mix(number: int) -> Callable:
        # Nothing is donated: an in-place mix first copies what it overwrites.
        @jax.jit
        def mix(
            start: WorkerState,
            stepped: Fields,
            sent: list[Outgoing],
            present: Present | None,
        ) -> dict[int, jax.Array]:
            # No result of this program depends on these.
            later = jax.tree.map(
                lambda x: jnp.zeros(x.shape, x.dtype), buckets[number + 1 :]
            )
            mixed = mix_all(start, stepped, [*sent, *later], present)
            leaves = enumerate(jax.tree.leaves(mixed))
            ready = {i: x for i, x in leaves if needed[i] == number}
            return place(ready, state_shardings(ready, mesh))

        return mix

    return [make_mix(number) for number in range(len(buckets))]


def put_mixed(
    end: WorkerState, mixed: dict[int, jax.Array], present: Present | None
) -> WorkerState:
    """Puts the results of all mixes of a round into the state.

    >>> import jax, jax.numpy as jnp
    >>> from olsgd_jax import WorkerState
    >>> from olsgd_jax.drivers.host_programs import put_mixed
    >>> end = WorkerState(jnp.zeros(2), (), (), (), jax.random.key(0), jnp.zeros(2))
    >>> put_mixed(end, {0: jnp.ones(2), 1: jnp.ones(2)}, None).params.tolist()
    [1.0, 1.0]
    """
    names = changed_by_mix(present)
    like = jax.tree.structure([getattr(end, name) for name in names])
    fields = jax.tree.unflatten(like, [mixed[i] for i in range(like.num_leaves)])
    return end._replace(**dict(zip(names, fields, strict=True)))


def changed_by_mix(present: Present | None) -> tuple[str, ...]:
    """Names the fields of the state that a mix changes."""
    # The mix also undoes what the steps did to an absent worker's optimizer state.
    return MIXED if present is None else (*MIXED, "opt_state")


def _of_first_worker(tree: ArrayTree) -> ArrayTree:
    return jax.tree.map(lambda x: x[0], tree)


def _each(mark: int, tree: ArrayTree) -> list[int]:
    return [mark] * len(jax.tree.leaves(tree))
