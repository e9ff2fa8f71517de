"""Forms of a mean that travels beside the local steps.

    tree         a collective for every array, before the steps
    held         the same, of the models themselves: their sum is divided at the end
    flat         one collective of one vector, before the steps
    parcels      a collective for every parcel of the vector (see `parcels`)
    fragments    with every local step, one collective of a piece of the vector
    exchange     with every two local steps, two exchanges of a piece (see `exchange`)

All give the same mean, and a barrier holds its use back until the steps, or the step,
have ended. A compiler that starts collectives early but runs few of them at a time
overlaps `flat` and not `tree`; one that joins collectives by itself overlaps `held`,
without the memory for anything but the mean; `fragments` need the memory of one vector,
where `flat` may need that of two; devices that cannot add up while they send need
`exchange`.
"""

from collections.abc import Callable

import jax
from jax import lax
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Int

from olsgd_jax._vectors import cut, from_vectors, join, send_piece, to_vectors
from olsgd_jax.reductions.base import Reduction
from olsgd_jax.round.local_steps import Step, Steps, WorkerState
from olsgd_jax.round.participation import Outgoing
from olsgd_jax.round.worker_round import Form
from olsgd_jax.types import ArrayTree
from olsgd_jax.workers.mesh import FSDP
from olsgd_jax.workers.sharding import on_parts, part_specs


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
    """Makes one vector of a worker's arrays, on each device of the parts it has."""
    specs = part_specs(models, mesh)
    return on_parts(to_vectors, mesh, (specs,), PartitionSpec(FSDP))(models)


def unflatten(
    vectors: dict[str, jax.Array], like: ArrayTree, mesh: Mesh | None
) -> ArrayTree:
    """Undoes `flatten`; `like` has the shapes."""
    specs = part_specs(like, mesh)
    undo = on_parts(from_vectors, mesh, (PartitionSpec(FSDP), specs), specs)
    return undo(vectors, like)


def fragments_form(mesh: Mesh | None = None) -> Form:
    """Reduces one of τ fragments of the message with every local step."""

    def form(
        reduction: Reduction,
        outgoing: Outgoing,
        steps: Callable[..., Steps],
        num_steps: int,
    ):
        message, _ = outgoing
        specs, spec = part_specs(message, mesh), PartitionSpec(None, FSDP)
        to_pieces = on_parts(lambda x: cut(x, num_steps), mesh, (specs,), spec)
        from_pieces = on_parts(join, mesh, (spec, specs), specs)

        def carry(
            pieces: ArrayTree, k: Int[Array, ""], step: Step, state: WorkerState
        ) -> tuple:
            return send_piece(
                pieces, k, beside=step(state), send=lambda x: reduction.reduce(*x)
            )

        done = steps(each(to_pieces, outgoing), carry=carry)
        return each(lambda x: from_pieces(x, message), done.sent), done

    return form
