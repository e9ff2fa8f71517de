"""Finds out how a strategy's means are sent, and sends the same means alone."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from olsgd_jax.drivers.forms.base import fragments_form
from olsgd_jax.drivers.platforms import default_driver, platform_of
from olsgd_jax.reductions.base import Reduction
from olsgd_jax.reductions.exact import exact
from olsgd_jax.round.local_steps import Carry, Steps, WorkerState
from olsgd_jax.round.worker_round import Form
from olsgd_jax.strategies.base import Strategy
from olsgd_jax.timing.payload import noting, payload_bytes
from olsgd_jax.types import ArrayTree, Driver, Params
from olsgd_jax.workers.axis import WORKERS, on_workers
from olsgd_jax.workers.sharding import to_workers


class Sending(NamedTuple):
    """How the means of a round are sent."""

    driver: Driver
    form: str  # form of the mean (see `drivers.forms`), or "gradients"
    messages: tuple[ArrayTree, ...]  # shapes of the messages of one mean, in order
    num_bytes: int  # payload of one worker for one mean


def sending(
    strategy: Strategy,
    stream: bool,
    params: Params,
    mesh: Mesh,
    sync_period: int,
    reduction: Reduction = exact(),
) -> Sending:
    """Says how `make_round` sends the means of a strategy.

    Args:
      strategy: how workers communicate.
      stream: whether every local step sends a fragment of the models.
      params: one worker's params; shapes suffice.
      mesh: where the workers are.
      sync_period: τ.
      reduction: how messages become a mean.
    """
    platform = platform_of(mesh, reduction)
    driver = "fused" if stream else default_driver(mesh, strategy)
    form = platform.form
    if stream:
        form = platform.streamed or fragments_form(mesh)
    messages: list[ArrayTree] = []

    note = noting(messages)

    def send(params: Params) -> Params:
        message = strategy.message(params, strategy.init(params))
        sent = reduction.part.take(message)
        match strategy.mean_of:
            case "start" if reduction.two_means is None:
                form(note, (sent, ()), _no_steps, sync_period)
            case _:  # two means are made of whole messages
                note.reduce(sent, ())
        return params

    jax.eval_shape(on_workers(send, mesh), _of_all(params, mesh))
    names = {"start": _name(form), "end": "tree", "gradients": "gradients"}
    payload = payload_bytes(
        functools.partial(_means, reduction),
        _of_all(messages, mesh),
        num_workers=mesh.shape[WORKERS],
    )
    return Sending(driver, names[strategy.mean_of], tuple(messages), payload)


def means_alone(
    messages: tuple[ArrayTree, ...], mesh: Mesh, reduction: Reduction = exact()
) -> Callable[[], None]:
    """Builds a function that sends messages one after the other, and waits for each.

    Every message is one program, even if the round sends it in fragments. An exact mean
    is an all-reduce, even if the round uses exchanges.
    """
    average = jax.jit(on_workers(functools.partial(_means, reduction), mesh))
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), messages)
    own = [to_workers(x, mesh.shape[WORKERS], mesh) for x in zeros]

    def send() -> None:
        for message in own:
            jax.block_until_ready(average([message]))

    return send


def _means(reduction: Reduction, messages: list[ArrayTree]) -> list[ArrayTree]:
    return [reduction.reduce(x, reduction.init(x))[0] for x in messages]


def _of_all(tree: ArrayTree, mesh: Mesh) -> ArrayTree:
    """Gives the shapes of all workers' arrays."""
    m = mesh.shape[WORKERS]
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct((m, *x.shape), x.dtype), tree)


def _no_steps(fragments: ArrayTree = (), carry: Carry | None = None) -> Steps:
    """Stands in for local steps: carries one fragment and computes nothing."""
    zero = jnp.zeros((), jnp.int32)
    state = WorkerState((), (), (), (), jax.random.key(0), zero)
    if carry is not None:
        carry(fragments, zero, lambda state: (state, jnp.zeros(())), state)
    return Steps(state, jnp.zeros(0), fragments)


def _name(form: Form) -> str:
    # Most forms are built by a function of the same name.
    return form.__qualname__.partition(".")[0].removesuffix("_form")
