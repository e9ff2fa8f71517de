"""Counts the bytes that a strategy sends, in the traced program of one worker.

The payload is what a worker hands to the collectives. How many bytes then cross its
link depends on the algorithm of the collective: a ring of m workers moves 2 (m − 1) / m
times the payload in each direction. A mean in two exchanges moves as much, (m − 1) / m
times the payload in each, so an exchange counts half.
"""

from collections.abc import Callable, Iterator

import jax
from jax.core import ShapedArray
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn

from olsgd_jax.reductions.base import Reduction
from olsgd_jax.reductions.send_nothing import send_nothing
from olsgd_jax.types import ArrayTree, Message, ReductionState
from olsgd_jax.workers.axis import WORKERS


def payload_bytes(fn: Callable, *args: ArrayTree, num_workers: int) -> int:
    """Counts the bytes that one worker's code hands to `worker_mean` in one call.

    Args:
      fn: one worker's code, such as `make_worker_round` builds.
      args: arguments of `fn` for all workers, with a leading worker axis; shapes
        suffice.
      num_workers: number of workers, m.

    >>> import jax.numpy as jnp
    >>> from olsgd_jax import payload_bytes, worker_mean
    >>> payload_bytes(worker_mean, {"w": jnp.zeros((4, 2, 3))}, num_workers=4)
    24
    """
    one_worker = jax.eval_shape(lambda x: jax.tree.map(lambda leaf: leaf[0], x), args)
    traced = jax.make_jaxpr(fn, axis_env=[(WORKERS, num_workers)])(*one_worker)
    return _sent_by(traced.jaxpr)


def noting(messages: list[ArrayTree]) -> Reduction:
    """Builds a reduction that sends nothing and records the shapes of its messages.

    Args:
      messages: list to which the shapes of every message are appended.
    """
    own = send_nothing()

    def note(message: Message, state: ReductionState, *args, **options) -> tuple:
        messages.append(
            jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), message)
        )
        return own.reduce(message, state, *args, **options)

    return own._replace(name="noting", reduce=note)


def _sent_by(jaxpr: Jaxpr) -> int:
    return sum(_sent_by_eqn(eqn) for eqn in jaxpr.eqns)


def _sent_by_eqn(eqn: JaxprEqn) -> int:
    handed = [x.aval for x in eqn.invars if isinstance(x.aval, ShapedArray)]
    num_bytes = sum(x.size * x.dtype.itemsize for x in handed)
    match eqn.primitive.name:
        case "psum":
            return num_bytes
        case "all_to_all":
            return num_bytes // 2
        case "all_gather":
            return num_bytes * eqn.params["axis_size"] // 2
    inner = [_sent_by(jaxpr) for jaxpr in _jaxprs_in(eqn)]
    match eqn.primitive.name:
        case "scan":
            return eqn.params["length"] * sum(inner)
        case "while" if any(inner):
            raise ValueError(
                "payload must be known before the program runs, but this "
                "one has a mean inside a while loop; use lax.scan"
            )
        case "cond":
            return max(inner)
    return sum(inner)


def _jaxprs_in(eqn: JaxprEqn) -> Iterator[Jaxpr]:
    for value in eqn.params.values():
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, ClosedJaxpr):
                yield item.jaxpr
            elif isinstance(item, Jaxpr):
                yield item
