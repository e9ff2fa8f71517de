"""Forms of a mean that runs concurrently with the local steps.

    tree         a collective for every array, before the steps
    held         the same, of the models themselves: their sum is divided at the end
    flat         one collective of one vector, before the steps
    buckets      a collective for every bucket of the vector (see `buckets`)
    fragments    with every local step, one collective of a fragment (see `fragments`)
    exchange     with every two local steps, a fragment in two exchanges (`exchange`)

All give the same mean, and a barrier holds its use back until the steps, or the step,
have ended. A compiler that starts collectives early but runs few of them at a time
overlaps `flat` and not `tree`; one that joins collectives by itself overlaps `held`,
without the memory for anything but the mean; `fragments` need the memory of one vector,
where `flat` may need that of two; devices that cannot add up while they send need
`exchange`. A form cuts what the reduction keeps as it cuts the message.
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
from olsgd_jax.reductions.base import Reduction
from olsgd_jax.round.local_steps import Step, Steps, WorkerState
from olsgd_jax.round.participation import Outgoing
from olsgd_jax.round.worker_round import Form
from olsgd_jax.types import ArrayTree
from olsgd_jax.workers.mesh import FSDP
from olsgd_jax.workers.sharding import on_shards, shard_specs


def held_form(
    reduction: Reduction,
    outgoing: Outgoing,
    steps: Callable[..., Steps],
    num_steps: int,
):
    """Reduces the message as it is: a collective for every array, and no copy."""
    del num_steps
    done = steps()

    def until_done(total: ArrayTree) -> ArrayTree:
        nonlocal done
        total, done = lax.optimization_barrier((total, done))
        return total

    sent = reduction.reduce(*outgoing, hold=until_done)
    return sent, done


def each(fn: Callable[[ArrayTree], ArrayTree], outgoing: Outgoing) -> Outgoing:
    """Does the same to a message and to every tree that its reduction keeps.

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
        del num_steps
        message, _ = outgoing
        vectors = each(lambda x: flatten(x, mesh), outgoing)
        sent, done = reduction.reduce(*vectors), steps()
        # Without it the compiler may cut the mean up before the steps, and wait for it.
        sent, done = lax.optimization_barrier((sent, done))
        return each(lambda x: unflatten(x, message, mesh), sent), done

    return form


def flatten(models: ArrayTree, mesh: Mesh | None) -> dict[str, jax.Array]:
    """Makes one vector of a worker's arrays, on each device of the shards it has."""
    specs = shard_specs(models, mesh)
    return on_shards(to_vectors, mesh, (specs,), PartitionSpec(FSDP))(models)


def unflatten(
    vectors: dict[str, jax.Array], like: ArrayTree, mesh: Mesh | None
) -> ArrayTree:
    """Undoes `flatten`; `like` has the shapes."""
    specs = shard_specs(like, mesh)
    undo = on_shards(from_vectors, mesh, (PartitionSpec(FSDP), specs), specs)
    return undo(vectors, like)


def fragments_form(mesh: Mesh | None = None) -> Form:
    """Reduces one of τ fragments of the message with every local step.

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
