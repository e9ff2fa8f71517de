"""Forms of a mean that travels beside the local steps.

    tree         a collective for every array, before the steps
    flat         one collective of one vector, before the steps
    fragments    with every local step, one piece of every array

All give the same mean, and a barrier holds its use back until the steps have ended. A
compiler that starts collectives early but runs few of them at a time overlaps `flat`
and not `tree`; one that joins collectives by itself overlaps `tree`, without the
memory for a vector; one that overlaps nothing with a loop still overlaps `fragments`
with the steps inside of it.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh, PartitionSpec

from olsgd_jax.local import Steps
from olsgd_jax.mesh import FSDP
from olsgd_jax.pieces import cut, join
from olsgd_jax.placement import on_parts, part_specs
from olsgd_jax.round import Form
from olsgd_jax.types import ArrayTree, Mean


def flat_form(mesh: Mesh | None = None) -> Form:
    """Averages the models as one vector."""

    def form(mean: Mean, models: ArrayTree, steps: Callable[..., Steps]):
        specs, spec = part_specs(models, mesh), PartitionSpec(FSDP)
        to_vectors = on_parts(_to_vectors, mesh, (specs,), spec)
        to_models = on_parts(_to_models, mesh, (spec, specs), specs)
        sent = mean(to_vectors(models))
        done = steps()
        # Without it the compiler may cut the mean up before the steps, and wait for it.
        sent, done = lax.optimization_barrier((sent, done))
        return to_models(sent, models), done

    return form


def fragments_form(sync_period: int, mesh: Mesh | None = None) -> Form:
    """Averages one of `sync_period` pieces of every array beside every local step."""

    def form(mean: Mean, models: ArrayTree, steps: Callable[..., Steps]):
        specs, spec = part_specs(models, mesh), PartitionSpec(None, FSDP)
        to_pieces = on_parts(lambda x: cut(x, sync_period), mesh, (specs,), spec)
        to_models = on_parts(join, mesh, (spec, specs), specs)
        done = steps(to_pieces(models), send=mean)
        return to_models(done.sent, models), done

    return form


def _to_vectors(tree: ArrayTree) -> dict[str, jax.Array]:
    """Joins all arrays of a dtype; most often there is one dtype."""
    leaves = jax.tree.leaves(tree)
    return {
        dtype: jnp.concatenate([x.ravel() for x in leaves if x.dtype.name == dtype])
        for dtype in sorted({x.dtype.name for x in leaves})
    }


def _to_models(vectors: dict[str, jax.Array], like: ArrayTree) -> ArrayTree:
    """Undoes `_to_vectors`; `like` has the shapes."""
    leaves, structure = jax.tree.flatten(like)
    taken, parts = dict.fromkeys(vectors, 0), []
    for x in leaves:
        first = taken[x.dtype.name]
        taken[x.dtype.name] = first + x.size
        parts.append(vectors[x.dtype.name][first : first + x.size].reshape(x.shape))
    return jax.tree.unflatten(structure, parts)
