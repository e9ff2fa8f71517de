"""What the optax face keeps of a delayed message while the steps of a round send it.

    begin     message -> what step 0 starts to send
    carry     step k sends a fragment
    finish    after step τ − 1 -> the mean

A message is τ fragments of itself, each of which becomes a fragment of the mean. Where
the reduction is made of two means, the message stays as it is, and the fragments are
those of the two messages in turn (see `halves`). If τ is odd, the last step of the
round sends none of them. If it is 1, the step computes both means.
"""

from collections.abc import Hashable
from typing import NamedTuple

import jax
import optax
from jax import lax
from jaxtyping import Array, Int

from olsgd_jax.drivers.forms.fragments import (
    carry_fragment,
    cut_fragments,
    join_fragments,
)
from olsgd_jax.drivers.forms.halves import (
    Halves,
    Parts,
    empty_parts,
    finish_halves,
    plan_halves,
    put_first,
    put_second,
)
from olsgd_jax.drivers.forms.tiles import tile_shape
from olsgd_jax.reductions.base import Reduction
from olsgd_jax.reductions.exact import exact
from olsgd_jax.round.participation import Outgoing, choose
from olsgd_jax.types import ArrayTree, Message, ReductionState


class InHalves(NamedTuple):
    """A message in transit, of a reduction that is made of two means."""

    message: Message  # if τ is 1, the mean once it is there
    parts: Parts  # of the two messages that are sent in its place; {} if τ is 1


def init_transit(
    reduction: Reduction, like: Message, sync_period: int
) -> tuple[ArrayTree, ReductionState]:
    """Gives room for messages in transit, and the reduction's first state for them.

    Args:
      reduction: how messages become their mean.
      like: a message, for its shapes.
      sync_period: τ, the number of steps that send a message.
    """
    if reduction.two_means is None:
        fragments = cut_fragments(like, sync_period)
        return fragments, reduction.init(fragments)
    own = reduction.init(like)
    halves = _plan(reduction, (like, own), sync_period)
    parts = {} if halves is None else empty_parts(halves)
    return InHalves(optax.tree.zeros_like(like), parts), own


def begin_transit(
    reduction: Reduction, outgoing: Outgoing, before: ArrayTree, sync_period: int
) -> ArrayTree:
    """Gives what the steps of a round send of a message.

    Args:
      reduction: how messages become their mean.
      outgoing: the message and the reduction's state.
      before: the message in transit of the last round, or of `init_transit`.
      sync_period: τ, the number of steps that send the message.
    """
    if reduction.two_means is None:
        return cut_fragments(outgoing[0], sync_period)
    halves, parts = _plan(reduction, outgoing, sync_period), {}
    if halves is not None:
        parts = put_first(halves, outgoing, before.parts)
    return InHalves(outgoing[0], parts)


def carry_transit(
    reduction: Reduction,
    outgoing: Outgoing,
    k: Int[Array, ""],
    updates: ArrayTree,
    axis_name: Hashable,
    sync_period: int,
) -> tuple[Outgoing, ArrayTree]:
    """Sends the fragment of step k, as `carry_fragment` does.

    Args:
      reduction: how messages become their mean.
      outgoing: the message in transit and the reduction's state.
      k: index of the local step.
      updates: what the step computes, before the result is used.
      axis_name: name of the worker axis.
      sync_period: τ, the number of steps that send the message.

    Returns:
      The message in transit, the reduction's state, and the updates.
    """
    transit, own = outgoing
    if not isinstance(transit, InHalves):
        return carry_fragment(reduction, outgoing, k, updates, axis_name)
    whole = transit.message, own
    halves = _plan(reduction, whole, sync_period)
    if halves is None:
        sent = reduction.reduce(*whole, axis_name)
        (mean, own), updates = lax.optimization_barrier((sent, updates))
        return (InHalves(mean, {}), own), updates
    per_part = _steps_per_part(sync_period)
    num_sending = per_part * halves.num_parts
    mean = exact()
    if per_part == 1:  # the steps send a part each, so no part can take two exchanges
        mean = mean._replace(codec=None)
    fragments = jax.tree.map(
        lambda x: x.reshape(num_sending, *x.shape[2:]), transit.parts
    )
    (fragments, _), updates = carry_fragment(
        mean, (fragments, ()), k, updates, axis_name
    )
    parts = jax.tree.map(lambda x, y: x.reshape(y.shape), fragments, transit.parts)
    if num_sending < sync_period:
        parts = choose(k < num_sending, parts, transit.parts)
    is_time = k == per_part * halves.num_first - 1
    parts = put_second(halves, whole, parts, is_time)
    return (transit._replace(parts=parts), own), updates


def finish_transit(
    reduction: Reduction, outgoing: Outgoing, like: Message, sync_period: int
) -> Outgoing:
    """Gives the mean and the reduction's state, after the last step of a round.

    Args:
      reduction: how messages become their mean.
      outgoing: the message in transit and the reduction's state.
      like: a message, for its shapes.
      sync_period: τ, the number of steps that sent the message.
    """
    transit, own = outgoing
    if not isinstance(transit, InHalves):
        return join_fragments(transit, like), own
    whole = transit.message, own
    halves = _plan(reduction, whole, sync_period)
    return whole if halves is None else finish_halves(halves, whole, transit.parts)


def _steps_per_part(sync_period: int) -> int:
    """Two, as an exchange needs on TPUs, if there are steps for two such parts."""
    return 2 if sync_period >= 4 else 1


def _plan(reduction: Reduction, outgoing: Outgoing, sync_period: int) -> Halves | None:
    """How the steps of a round send two messages; None if there is one step."""
    if reduction.two_means is None or sync_period < 2:
        return None
    per_part = _steps_per_part(sync_period)

    def shape_of(size: int) -> tuple[int, ...]:
        return per_part, *tile_shape(-(-size // per_part))

    # As many for every platform, since the shapes of a state do not depend on it.
    num_parts = sync_period // 2 if per_part == 2 else 2
    return plan_halves(reduction.two_means, outgoing, num_parts, shape_of)
