"""Gradients with convolutions that are fast inside a loop on CPUs.

XLA for CPUs has fast code for channels-last convolutions. It converts other layouts,
but not inside a loop such as the local steps, and the gradient of a convolution is
never channels-last by itself. Without this rewrite it would take many times as long.
"""

from collections.abc import Callable, Iterable
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, jaxpr_as_fun


def channels_last_gradient(loss: Callable, has_aux: bool = False) -> Callable:
    """Does what `jax.value_and_grad` does, with all convolutions channels-last.

    >>> import jax, jax.numpy as jnp
    >>> from olsgd_jax.drivers.convolutions import channels_last_gradient
    >>> def loss(kernel, image):
    ...     return jax.lax.conv(image, kernel, (1, 1), "VALID").sum()
    >>> kernel, image = jnp.ones((1, 1, 2, 2)), jnp.ones((1, 1, 3, 3))
    >>> value, grads = channels_last_gradient(loss)(kernel, image)
    >>> value.item(), grads.ravel().tolist()
    (16.0, [4.0, 4.0, 4.0, 4.0])
    """
    gradient = jax.value_and_grad(loss, has_aux=has_aux)

    def channels_last(*args):
        program, shapes = jax.make_jaxpr(gradient, return_shape=True)(*args)
        outputs = jaxpr_as_fun(_rewrite(program))(*jax.tree.leaves(args))
        return jax.tree.unflatten(jax.tree.structure(shapes), outputs)

    return channels_last


def _rewrite(part):
    """Rewrites a parameter of an equation if it holds programs."""
    # Since JAX 0.12 the two names mean one class, whose `jaxpr` is the object itself.
    match part:
        case Jaxpr():
            equations = [new for old in part.eqns for new in _equations(old)]
            return part.replace(eqns=equations)
        case ClosedJaxpr():
            return part.replace(jaxpr=_rewrite(part.jaxpr))
        case (ClosedJaxpr(), *_):  # the branches of a condition
            return tuple(map(_rewrite, part))
        case _:
            return part


def _equations(old: JaxprEqn) -> Iterable[JaxprEqn]:
    if old.primitive is not lax.conv_general_dilated_p:
        params = {name: _rewrite(value) for name, value in old.params.items()}
        return [old.replace(params=params)]
    inputs = [name.aval for name in old.invars]
    program = jax.make_jaxpr(partial(_convolve, **old.params))(*inputs).jaxpr
    names = dict(zip(program.invars, old.invars, strict=True))
    names |= dict(zip(program.outvars, old.outvars, strict=True))
    return [
        new.replace(
            invars=[names.get(name, name) for name in new.invars],
            outvars=[names.get(name, name) for name in new.outvars],
            source_info=old.source_info,
        )
        for new in program.eqns
    ]


def _convolve(images: jax.Array, kernel: jax.Array, *, dimension_numbers, **params):
    batch, channels, *space = dimension_numbers.lhs_spec
    kernel_out, kernel_in, *kernel_space = dimension_numbers.rhs_spec
    out_batch, out_channels, *out_space = dimension_numbers.out_spec
    order = first, *middle, last = tuple(range(images.ndim))
    result = lax.conv_general_dilated(
        jnp.moveaxis(images, (batch, *space, channels), order),
        jnp.moveaxis(kernel, (*kernel_space, kernel_in, kernel_out), order),
        dimension_numbers=lax.ConvDimensionNumbers(
            lhs_spec=(first, last, *middle),
            rhs_spec=(last, last - 1, *order[:-2]),
            out_spec=(first, last, *middle),
        ),
        **params,
    )
    return jnp.moveaxis(result, order, (out_batch, *out_space, out_channels))
