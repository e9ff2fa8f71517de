"""Checks of the user's optimizer."""

import jax
import jax.numpy as jnp
import optax
from jax.core import Tracer

from olsgd_jax.round.optimizer_step import dry_step, find_states
from olsgd_jax.types import ArrayTree, OptState, Params


def check_optimizer(optimizer: object) -> None:
    """Raises unless `optimizer` is an optax optimizer.

    >>> check_optimizer(optax.adam)
    Traceback (most recent call last):
    TypeError: optimizer must be an optax optimizer, got the function adam; call it, ...
    """
    is_class = isinstance(optimizer, type)
    parts = [getattr(optimizer, part, None) for part in ("init", "update")]
    if not is_class and all(map(callable, parts)):
        return
    name = getattr(optimizer, "__name__", None)
    got, fix = f"{optimizer!r:.60}", "pass one, as in optax.sgd(learning_rate)"
    if name is not None:
        got = f"the {'class' if is_class else 'function'} {name}"
        fix = f"call it, as in {name}(learning_rate)"
    raise TypeError(f"optimizer must be an optax optimizer, got {got}; {fix}")


def check_hyperparameters(state: OptState) -> None:
    """Raises if `optax.inject_hyperparams` has rounded a decay rate to 1.

    >>> adam = optax.inject_hyperparams(optax.adam)(learning_rate=0.1)
    >>> check_hyperparameters(adam.init(jnp.zeros(3, jnp.bfloat16)))
    Traceback (most recent call last):
    ValueError: b2 of the optimizer must be below 1, got 1 in bfloat16, to which ...
    """
    for injected in find_states(optax.InjectStatefulHyperparamsState, state):
        for name, value in injected.hyperparams.items():
            if name not in ("b1", "b2", "b3") or isinstance(value, Tracer):
                continue
            if jnp.any(value.addressable_data(0) == 1):
                raise ValueError(
                    f"{name} of the optimizer must be below 1, got 1 in {value.dtype}, "
                    "to which inject_hyperparams rounds it for such params; pass it "
                    "hyperparam_dtype=jnp.float32"
                )


def check_steps_together(
    optimizer: optax.GradientTransformation,
    params: Params,
    state: OptState,
    sync_period: int,
) -> None:
    """Raises if a round would end between steps that belong together.

    Args:
      optimizer: any optax optimizer; only `optax.contrib.sam` has such steps.
      params: params of all workers; shapes and dtypes are enough.
      state: the optimizer's state on all workers.
      sync_period: local steps of a round.
    """
    together = _steps_together(optimizer, *_of_one((params, state)))
    if sync_period % together:
        raise ValueError(
            f"sync_period must be a multiple of the {together} steps that "
            f"optax.contrib.sam takes together, got {sync_period}; a mix between them "
            "would average adversarial models, and the next step would undo it"
        )


def _steps_together(
    optimizer: optax.GradientTransformation, params: Params, state: OptState
) -> int:
    """Counts the steps from one real model to the next: 1, except for `sam`."""
    if not _sam_states(state):
        return 1

    @jax.jit
    def counts_after(counts: list) -> list:
        zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), (params, state))
        after = dry_step(optimizer, zeros[0], _with_counts(zeros[1], counts))
        return [x.steps_since_sync for x in _sam_states(after)]

    # Evaluated now, although a round is being traced. Only the counters are computed.
    with jax.ensure_compile_time_eval():
        counts = counts_after([jnp.zeros((), jnp.int32) for _ in _sam_states(state)])
        num_steps = 1
        while any(counts):
            counts, num_steps = counts_after(counts), num_steps + 1
    return num_steps


def _of_one(trees: ArrayTree) -> ArrayTree:
    """Gives the shapes of one worker's arrays."""
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), trees)


def _sam_states(state: OptState) -> list:
    return [x for x in find_states(optax.contrib.SAMState, state) if _is_sam(x)]


def _is_sam(state: OptState) -> bool:
    # In its opaque mode sam keeps no cache, and does everything within one step.
    return isinstance(state, optax.contrib.SAMState) and state.cache is not None


def _with_counts(state: OptState, counts: list) -> OptState:
    left = iter(counts)

    def put(x: OptState) -> OptState:
        return x._replace(steps_since_sync=next(left)) if _is_sam(x) else x

    return jax.tree.map(put, state, is_leaf=_is_sam)
