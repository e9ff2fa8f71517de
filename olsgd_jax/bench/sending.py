"""Finds out how a strategy's means are sent, and sends the same means alone."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from olsgd_jax.drivers.forms.base import fragments_form
from olsgd_jax.drivers.platforms import default_driver, platform_of
from olsgd_jax.reductions.exact import num_bytes, worker_mean
from olsgd_jax.round.local_steps import Carry, Steps, WorkerState
from olsgd_jax.round.worker_round import Form
from olsgd_jax.strategies.base import Strategy
from olsgd_jax.timing.payload import gradient_messages, noting
from olsgd_jax.types import ArrayTree, Driver, Params
from olsgd_jax.workers.axis import WORKERS, on_workers
from olsgd_jax.workers.sharding import to_workers


class Sending(NamedTuple):
    """How the means of a round are sent."""

    driver: Driver
    form: str  # form of the mean (see `drivers.forms`), or "gradients"
    messages: tuple[ArrayTree, ...]  # shapes of the messages of one mean, in order

    @property
    def num_bytes(self) -> int:
        """The payload of one worker for one mean."""
        return num_bytes(self.messages)


def sending(
    strategy: Strategy, stream: bool, params: Params, mesh: Mesh, sync_period: int
) -> Sending:
    """Says how `make_round` sends the means of a strategy.

    Args:
      strategy: how workers communicate.
      stream: whether every local step sends a fragment of the models.
      params: one worker's params; shapes suffice.
      mesh: where the workers are.
      sync_period: τ.
    """
    platform = platform_of(mesh)
    driver = "fused" if stream else default_driver(mesh, strategy)
    form = platform.form
    if stream:
        form = platform.streamed or fragments_form(mesh)
    messages: list[ArrayTree] = []

    reduction = noting(messages)

    def send(params: Params) -> Params:
        match strategy.mean_of:
            case "start":
                form(reduction, (params, ()), _no_steps, sync_period)
            case "end":
                reduction.reduce(params, ())
            case "gradients":
                messages.extend(gradient_messages(strategy, params))
        return params

    of_all = jax.eval_shape(
        lambda: jax.tree.map(
            lambda x: jnp.zeros((mesh.shape[WORKERS], *x.shape), x.dtype), params
        )
    )
    jax.eval_shape(on_workers(send, mesh), of_all)
    names = {"start": _name(form), "end": "tree", "gradients": "gradients"}
    return Sending(driver, names[strategy.mean_of], tuple(messages))


def means_alone(messages: tuple[ArrayTree, ...], mesh: Mesh) -> Callable[[], None]:
    """Builds a function that sends messages one after the other, and waits for each.

    Every message is one program of all-reduces, even if the round uses exchanges.
    """
    average = jax.jit(on_workers(worker_mean, mesh))
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), messages)
    own = [to_workers(x, mesh.shape[WORKERS], mesh) for x in zeros]

    def send() -> None:
        for message in own:
            jax.block_until_ready(average(message))

    return send


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
