"""Forms of a mean that travels beside the local steps.

    tree         a collective for every array, before the steps
    flat         one collective of one vector, before the steps; a barrier holds its use
                 back until they have ended
    fragments    with every local step, one piece of every array

All give the same mean. A compiler that starts collectives early but runs few of them
at a time overlaps `flat` and not `tree`; one that overlaps nothing with a loop still
overlaps `fragments` with the steps inside of it.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from olsgd_jax.local import Steps
from olsgd_jax.pieces import cut, join
from olsgd_jax.round import Form
from olsgd_jax.types import ArrayTree, Mean


def flat_form(mean: Mean, models: ArrayTree, steps: Callable[..., Steps]):
    """Averages the models as one vector, whose use waits for the steps' end."""
    leaves, structure = jax.tree.flatten(models)
    dtypes = sorted({x.dtype.name for x in leaves})  # a vector for each, most often one
    vectors = {
        dtype: jnp.concatenate([x.ravel() for x in leaves if x.dtype.name == dtype])
        for dtype in dtypes
    }
    sent = mean(vectors)
    done = steps()
    # Without it the compiler may cut the mean up before the steps, and wait for it.
    sent, done = lax.optimization_barrier((sent, done))
    taken, parts = dict.fromkeys(dtypes, 0), []
    for x in leaves:
        first = taken[x.dtype.name]
        taken[x.dtype.name] = first + x.size
        parts.append(sent[x.dtype.name][first : first + x.size].reshape(x.shape))
    return jax.tree.unflatten(structure, parts), done


def fragments_form(sync_period: int) -> Form:
    """Averages one of `sync_period` pieces of every array beside every local step."""

    def form(mean: Mean, models: ArrayTree, steps: Callable[..., Steps]):
        done = steps(cut(models, sync_period), send=mean)
        return join(done.sent, like=models), done

    return form
