"""One step of any optax optimizer.

optax's optimizers differ in the arguments that they need and the state that they keep:

    lookahead             trains a pair of models, with gradients at the fast one
    sam                   moves to an adversarial model and back, in several steps
    line searches, lbfgs  evaluate the loss themselves
    inject_hyperparams    may change the dtype of its state after the first step

`apply_optimizer` gives them one interface: params, state, gradient and loss.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from olsgd_jax.types import Grads, OptState, Params

# The second alternative is the wording of optax's line searches.
_UNKNOWN = re.compile(r"(?:keyword argument |consumed by `value_fn`: \[)'(\w+)'")
_MISSING = re.compile(r"required keyword-only arguments?: (.+)$")


class StepLoss(NamedTuple):
    """What optimizers may need to know about a step's loss, under optax's names."""

    grad: Grads
    value: Float[Array, ""] | None = None
    # params -> value on the same batch
    value_fn: Callable[[Params], jax.Array] | None = None
    # params, number of the evaluation -> gradient on the same batch
    grad_fn: Callable[[Params, int], Grads] | None = None
    # If gradients are averaged over workers, the value must be too, or workers that
    # should stay equal would diverge. Called only for optimizers that need the value.
    mean_value: Callable[[], jax.Array] | None = None


def trained(params: Params) -> Params:
    """Gives the model that is differentiated: the params, or lookahead's fast ones.

    >>> trained({"w": 1.0}), trained(optax.LookaheadParams(fast=2.0, slow=3.0))
    ({'w': 1.0}, 2.0)
    """
    return params.fast if isinstance(params, optax.LookaheadParams) else params


def init_optimizer(optimizer: optax.GradientTransformation, params: Params) -> OptState:
    """Gives the initial state, in the dtypes that it will have after a few steps.

    Adam with hyperparameters in float32 and params in bfloat16, for example, starts
    with moments in bfloat16 and continues with moments in float32.
    """
    state = optimizer.init(params)
    if find_states(optax.LookaheadState, state) and trained(params) is params:
        raise TypeError(
            "params must be optax.LookaheadParams under optax.lookahead, got "
            f"{type(params).__name__}; pass init_state "
            "optax.LookaheadParams.init_synced(params)"
        )

    def step(state: OptState) -> OptState:
        return dry_step(optimizer, params, state)

    for _ in range(3):  # a promoted array may promote others in the next step
        state = cast_like(state, jax.eval_shape(step, state))
    return state


def apply_optimizer(
    optimizer: optax.GradientTransformation,
    params: Params,
    state: OptState,
    loss: StepLoss,
) -> tuple[Params, OptState]:
    """Takes one step, and keeps the dtypes of params and state."""
    updates, new = _update(optimizer, params, state, loss)
    return optax.apply_updates(params, updates), cast_like(new, state)


def cast_like(tree: OptState, like: OptState) -> OptState:
    """Casts arrays to the dtypes of a tree with the same structure.

    >>> cast_like(jnp.ones(1, jnp.float16), jnp.ones(1)).dtype.name
    'float32'
    """
    return jax.tree.map(lambda x, y: jnp.asarray(x, y.dtype), tree, like)


def _update(
    optimizer: optax.GradientTransformation,
    params: Params,
    state: OptState,
    loss: StepLoss,
) -> tuple[Grads, OptState]:
    update = optax.with_extra_args_support(optimizer).update
    extra = {name: x for name, x in loss._asdict().items() if x is not None}
    mean_value = extra.pop("mean_value", None)
    while True:
        try:
            return update(loss.grad, state, params, **extra)
        except TypeError as error:
            # Some optimizers, and chains of them, reject arguments they do not know.
            unknown = _UNKNOWN.search(str(error))
            if unknown and extra.pop(unknown[1], None) is not None:
                continue
            missing = _MISSING.search(str(error))
            if missing and mean_value and "value" not in extra:
                extra["value"] = mean_value()
                continue
            if missing:
                raise TypeError(
                    f"optimizer must need nothing but {', '.join(extra)}, got one "
                    f"that also needs {missing[1]}; use another one, or your own loop"
                ) from error
            raise


def dry_step(
    optimizer: optax.GradientTransformation, params: Params, state: OptState
) -> OptState:
    """Gives the state after a step with a made-up loss, for its dtypes and counters."""
    grads, value = trained(params), jnp.zeros((), jnp.float32)
    loss = StepLoss(grads, value, lambda params: value, lambda params, i: grads)
    # The caller may have set strict promotion, under which optax itself may fail.
    with jax.numpy_dtype_promotion("standard"):
        return _update(optimizer, params, state, loss)[1]


def find_states(kind: type, state: OptState) -> list:
    """Lists the states of one kind inside the state of a composed optimizer.

    >>> state = optax.chain(optax.clip(1.0), optax.adam(0.1)).init(jnp.zeros(3))
    >>> len(find_states(optax.ScaleByAdamState, state))
    1
    """
    leaves = jax.tree.leaves(state, is_leaf=lambda x: isinstance(x, kind))
    return [x for x in leaves if isinstance(x, kind)]
