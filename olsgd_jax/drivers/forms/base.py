"""Forms of a mean that runs concurrently with the local steps.

    tree         one collective per array, before the local steps
    held         as tree, but sends the arrays without a copy and divides at the end
    flat         one collective of one vector, before the local steps
    buckets      one collective per bucket of that vector (see `buckets`)
    fragments    one collective per local step, of a fragment (see `fragments`)
    exchange     two exchanges per fragment, one per local step (see `exchange`)

All of them compute the same mean, and a barrier delays its use until the local steps,
or the step that sends the fragment, have ended. They differ in what compilers overlap
and in memory:

    flat         for compilers that start collectives early but run few at a time
    held         for compilers that combine collectives; needs memory for the mean only
    fragments    needs memory for one vector, where flat may need two
    exchange     for devices that cannot add while they send

A form splits the reduction's state in the same way as the message. A reduction that is
made of two means needs whole messages: the steps then send fragments of its own two
(see `halves`), or the round computes both means before them.
"""

from collections.abc import Callable

import jax
from jax import lax
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Int

from olsgd_jax._vectors import from_vectors, to_vectors
from olsgd_jax.drivers.forms.fragments import (
    cut_fragments,
    join_fragments,
    send_fragment,
)
from olsgd_jax.drivers.forms.halves import Parts, plan_halves, round_in_halves
from olsgd_jax.drivers.forms.tiles import tile_shape
from olsgd_jax.reductions.base import Reduction
from olsgd_jax.reductions.exact import exact
from olsgd_jax.round.local_steps import Step, Steps, WorkerState
from olsgd_jax.round.participation import Outgoing
from olsgd_jax.round.worker_round import Form, tree_form
from olsgd_jax.types import ArrayTree
from olsgd_jax.workers.mesh import FSDP
from olsgd_jax.workers.sharding import on_shards, shard_specs


def held_form(
    reduction: Reduction,
    outgoing: Outgoing,
    steps: Callable[..., Steps],
    num_steps: int,
):
    """Reduces the message as it is, with one collective per array and no copy."""
    del num_steps
    done = steps()

    def until_done(total: ArrayTree) -> ArrayTree:
        nonlocal done
        total, done = lax.optimization_barrier((total, done))
        return total

    sent = reduction.reduce(*outgoing, hold=until_done)
    return sent, done


def each(fn: Callable[[ArrayTree], ArrayTree], outgoing: Outgoing) -> Outgoing:
    """Applies `fn` to a message and to every tree of its reduction's state.

    >>> each(lambda x: x + 1, (1, (2, 3)))
    (2, (3, 4))
    """
    message, state = outgoing
    return fn(message), tuple(map(fn, state))


def flat_form(mesh: Mesh | None = None) -> Form:
    """Reduces the message as one vector."""

    def form(
        reduction: Reduction,
        outgoing: Outgoing,
        steps: Callable[..., Steps],
        num_steps: int,
    ):
        if reduction.two_means is not None:
            return tree_form(reduction, outgoing, steps, num_steps)
        message, _ = outgoing
        vectors = each(lambda x: flatten(x, mesh), outgoing)
        sent, done = reduction.reduce(*vectors), steps()
        # Without the barrier, the compiler may split the mean before the local steps,
        # and wait for it there.
        sent, done = lax.optimization_barrier((sent, done))
        return each(lambda x: unflatten(x, message, mesh), sent), done

    return form


def flatten(models: ArrayTree, mesh: Mesh | None) -> dict[str, jax.Array]:
    """Joins a worker's arrays into one vector; each device joins its own shards."""
    specs = shard_specs(models, mesh)
    return on_shards(to_vectors, mesh, (specs,), PartitionSpec(FSDP))(models)


def unflatten(
    vectors: dict[str, jax.Array], like: ArrayTree, mesh: Mesh | None
) -> ArrayTree:
    """Undoes `flatten`; `like` gives the shapes."""
    specs = shard_specs(like, mesh)
    undo = on_shards(from_vectors, mesh, (PartitionSpec(FSDP), specs), specs)
    return undo(vectors, like)


def fragments_form(mesh: Mesh | None = None) -> Form:
    """Reduces a message in τ fragments, one per local step.

    >>> import optax
    >>> from olsgd_jax import make_worker_round, overlap_local_sgd, plain_loss
    >>> from olsgd_jax.drivers import fragments_form
    >>> loss = plain_loss(lambda params, batch: ((params - batch) ** 2).sum())
    >>> strategy = overlap_local_sgd(pullback=0.6)
    >>> worker_round = make_worker_round(
    ...     loss, optax.sgd(0.1), strategy, form=fragments_form()
    ... )
    """

    def form(
        reduction: Reduction,
        outgoing: Outgoing,
        steps: Callable[..., Steps],
        num_steps: int,
    ):
        if reduction.two_means is not None:
            if num_steps < 2:
                return tree_form(reduction, outgoing, steps, num_steps)
            halves = plan_halves(reduction.two_means, outgoing, num_steps, tile_shape)
            return round_in_halves(halves, outgoing, steps, send_part)
        message, _ = outgoing
        specs, spec = shard_specs(message, mesh), PartitionSpec(None, FSDP)
        cut = on_shards(lambda x: cut_fragments(x, num_steps), mesh, (specs,), spec)
        join = on_shards(join_fragments, mesh, (spec, specs), specs)

        def carry(
            fragments: ArrayTree, k: Int[Array, ""], step: Step, state: WorkerState
        ) -> tuple:
            return send_fragment(reduction, fragments, k, until=step(state))

        done = steps(each(cut, outgoing), carry=carry)
        return each(lambda x: join(x, message), done.sent), done

    return form


def send_part(
    parts: Parts, k: Int[Array, ""], step: Step, state: WorkerState
) -> tuple[Parts, tuple]:
    """Runs a local step concurrently with the exact mean of part k."""
    (parts, _), done = send_fragment(exact(), (parts, ()), k, until=step(state))
    return parts, done
