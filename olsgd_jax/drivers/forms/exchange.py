"""A mean in two exchanges, for devices that can send asynchronously but not add.

    step 2 p        worker i sends shard j of fragment p to worker j, which adds up what
                    it receives: shardⱼ of the mean is Σᵢ shardⱼ / m
    step 2 p + 1    worker j sends its shard of the mean to every worker

Every local step thus hides one exchange of a whole fragment, and a worker sends as much
as in a ring all-reduce: 2 (m − 1) / m models per round. All steps run the same program,
so if their number is odd, the exchange of the last one is not used.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Int

from olsgd_jax.drivers.forms.base import each
from olsgd_jax.drivers.forms.halves import Parts, plan_halves, round_in_halves
from olsgd_jax.drivers.forms.tiles import cut_tiles, join_tiles, tile_shape
from olsgd_jax.reductions.base import Reduction
from olsgd_jax.reductions.codec import AS_IT_IS
from olsgd_jax.reductions.shards import Mapped, start_exchange
from olsgd_jax.reductions.two_means import TwoMeans
from olsgd_jax.round.local_steps import Step, Steps, WorkerState
from olsgd_jax.round.participation import Outgoing, choose
from olsgd_jax.round.worker_round import Form
from olsgd_jax.types import ArrayTree
from olsgd_jax.workers.axis import WORKERS, platform_here, worker_count
from olsgd_jax.workers.mesh import FSDP
from olsgd_jax.workers.sharding import on_shards, shard_specs


def exchange_form(otherwise: Form, mesh: Mesh | None = None) -> Form:
    """Averages the models in ⌊τ / 2⌋ fragments, each over two local steps.

    Args:
      otherwise: the form to use if τ is 1, if slots hold several workers, or if the
        reduction has no codec. A reduction that is made of two means needs a τ of 4
        instead of a codec.
      mesh: mesh of the workers.
    """

    def form(
        reduction: Reduction,
        outgoing: Outgoing,
        steps: Callable[..., Steps],
        num_steps: int,
    ):
        slots = lax.axis_size(WORKERS)
        if reduction.two_means is not None:
            if num_steps < 4 or slots < worker_count():
                return otherwise(reduction, outgoing, steps, num_steps)
            return _exchange_halves(reduction.two_means, outgoing, steps, num_steps)
        codec = reduction.codec
        if codec is None or num_steps < 2 or slots < worker_count():
            return otherwise(reduction, outgoing, steps, num_steps)
        models, _ = outgoing
        num_shards = num_steps // 2 * slots
        specs, spec = shard_specs(models, mesh), PartitionSpec(None, FSDP)
        cut = on_shards(lambda x: cut_tiles(x, num_shards), mesh, (specs,), spec)
        join = on_shards(join_tiles, mesh, (spec, specs), specs)
        shards = each(cut, outgoing)
        fragments = jax.tree.map(lambda x: x.reshape(-1, slots, *x.shape[1:]), shards)
        start = partial(start_exchange, codec, on_devices=on_devices(mesh, spec))
        is_even = num_steps % 2 == 0
        done = steps(fragments, carry=partial(exchange_fragment, start, is_even))
        sent = jax.tree.map(lambda x, y: x.reshape(y.shape), done.sent, shards)
        return each(lambda x: join(x, models), sent), done

    return form


def _exchange_halves(
    two_means: TwoMeans,
    outgoing: Outgoing,
    steps: Callable[..., Steps],
    num_steps: int,
) -> tuple[Outgoing, Steps]:
    slots = lax.axis_size(WORKERS)

    def shape_of(size: int) -> tuple[int, ...]:
        return slots, *tile_shape(-(-size // slots))

    def send(
        parts: Parts, k: Int[Array, ""], step: Step, state: WorkerState
    ) -> tuple[Parts, tuple]:
        start, is_even = partial(start_exchange, AS_IT_IS), num_steps % 2 == 0
        (parts, _), done = exchange_fragment(
            start, is_even, (parts, ()), k, step, state
        )
        return parts, done

    halves = plan_halves(two_means, outgoing, num_steps // 2, shape_of)
    return round_in_halves(halves, outgoing, steps, send, steps_per_part=2)


def on_devices(mesh: Mesh | None, spec: PartitionSpec) -> Mapped:
    """Runs functions of shards on each device of a worker, on its own part of them.

    Keys are the same for all of them.
    """

    def spec_of(x: jax.Array) -> PartitionSpec:
        return spec if x.ndim else PartitionSpec()

    def mapped(fn: Callable) -> Callable:
        def on_each(*trees: ArrayTree) -> ArrayTree:
            return on_shards(fn, mesh, jax.tree.map(spec_of, trees), spec)(*trees)

        return on_each

    return mapped


def exchange_fragment(
    start: Callable,
    is_even: bool,
    fragments: Outgoing,
    k: Int[Array, ""],
    step: Step,
    state: WorkerState,
) -> tuple:
    """Runs a local step concurrently with one of the two exchanges of fragment k // 2.

    Args:
      start: starts the exchange of a fragment's shards (see `start_exchange`).
      is_even: whether the number of steps is even; if not, the last step changes no
        fragment.
      fragments: arrays with leading axes (fragment, worker that adds the shard), of the
        message and of what earlier ones lost.
      k: index of the local step.
      step: runs the local step; the fragment is not used before its params are
        computed.
      state: state before the step.

    Returns:
      The fragments, and the result of the step.
    """
    num_fragments = jax.tree.leaves(fragments)[0].shape[0]
    pair = jnp.minimum(k // 2, num_fragments - 1)
    sending = jax.tree.map(lambda x: x[pair], fragments)
    sent, finish = start(*sending, k % 2 == 0)
    # A GPU would wait for the host to choose the branch.
    state, value = _enclosed(step, state) if platform_here() == "tpu" else step(state)
    # Not the whole state: what no step changes can then stay outside the loop.
    sent, params = lax.optimization_barrier((sent, state.params))
    # Updated in place, so what the next step sends needs no memory of its own.
    new = finish(sent)
    if not is_even:
        new = choose(k < 2 * num_fragments, new, sending)
    put = jax.tree.map(lambda x, new: x.at[pair].set(new), fragments, new)
    return put, (state._replace(params=params), value)


def _enclosed(step: Step, state: WorkerState) -> tuple:
    """Runs a step as a separate computation, which TPUs schedule on its own.

    Inlined into the loop, half of its gradients would be delayed to hide an exchange,
    and their inputs kept alive: for ResNet-18, a third more memory.
    """
    _, value = jax.eval_shape(step, state)
    # Without the barrier, the compiler would see that the condition is constant, and
    # inline the branch.
    always = lax.optimization_barrier(jnp.array(True))
    return lax.cond(
        always, step, lambda state: (state, jnp.zeros(value.shape, value.dtype)), state
    )
