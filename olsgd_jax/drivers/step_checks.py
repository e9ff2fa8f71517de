"""Finds mistakes in a traced train step, before it is compiled.

Every value of the program is taken either to vary between workers or to be the same on
all of them. Floating-point inputs vary; other inputs, such as counters and keys, do
not. The result of a collective over the workers is the same on all of them. Any other
result varies if one of its inputs does. Then

    a branch that contains a collective must not depend on a value that varies: workers
    that take different branches would wait for each other forever;

    gradients passed to `distribute` must vary: otherwise they are averaged already;

    the step count of `distribute` must not vary: workers that skip a step on their own
    would average other fragments than the rest.
"""

from collections.abc import Hashable, Sequence

import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.extend.core import Jaxpr, JaxprEqn, Literal, Var

from olsgd_jax._tree_checks import containers_with
from olsgd_jax.types import ArrayTree

GRADIENTS = "olsgd_jax gradients"
"""Marks the gradients that `update` gets, in a traced program."""


_SAME = {"psum", "psum_invariant", "pmax", "pmin", "all_gather", "all_gather_invariant"}
_COLLECTIVES = _SAME | {"all_to_all", "ppermute", "reduce_scatter", "psum_scatter"}


def check_step(
    program: Jaxpr, axis_names: frozenset[Hashable], results: ArrayTree
) -> None:
    """Raises if a traced step would hang, average twice or part the workers.

    Args:
      program: a step mapped over the workers.
      axis_names: names of the mapped worker axes.
      results: a tree of the structure of the step's results.
    """
    given: list[bool] = []  # whether each gradient passed to distribute varies
    varies = [_is_float(x) for x in program.invars]
    varies = _follow(program, varies, axis_names, given)
    if given and not any(given):
        raise ValueError(
            "gradients must be each worker's own, got gradients that are already "
            "averaged over the workers; leave out the pmean or psum of the gradients, "
            "or the axis_name of a wrapper that averages them"
        )
    returned = jax.tree.unflatten(jax.tree.structure(results), varies)
    for state in containers_with(returned, "step", "fragments", "strategy_state"):
        if any(jax.tree.leaves(state["step"])):
            raise ValueError(
                "workers must all take every step, but this step keeps the old state "
                "where a value that differs between workers says so, as in "
                "jnp.where(is_finite, new, old); skip steps inside instead: "
                "distribute(optax.apply_if_finite(optimizer, ...), ...)"
            )


def _follow(
    program: Jaxpr,
    varies: Sequence[bool],
    axis_names: frozenset[Hashable],
    given: list[bool],
) -> list[bool]:
    """Gives which results of a program vary, from which of its inputs vary."""
    known = dict(zip(program.invars, varies, strict=True))

    def of(x: Literal | Var) -> bool:
        return not isinstance(x, Literal) and known.get(x, False)

    for eqn in program.eqns:
        inputs = [of(x) for x in eqn.invars]
        results = _results(eqn, inputs, axis_names, given)
        known |= dict(zip(eqn.outvars, results, strict=True))
    return [of(x) for x in program.outvars]


def _results(
    eqn: JaxprEqn,
    inputs: list[bool],
    axis_names: frozenset[Hashable],
    given: list[bool],
) -> list[bool]:
    everything = [any(inputs)] * len(eqn.outvars)
    if eqn.primitive.name in _SAME and _axes(eqn) >= axis_names:
        return [False] * len(eqn.outvars)
    if eqn.primitive.name == "name" and eqn.params["name"] == GRADIENTS:
        given += inputs
    inner = _programs(eqn)
    if eqn.primitive.name == "cond":
        chooses, *operands = inputs
        if chooses and any(_communicates(x, axis_names) for x in inner):
            raise ValueError(
                "workers must agree on every branch that communicates, but this step "
                "chooses one by values that differ between workers, and would hang if "
                "they chose differently; put a wrapper such as optax.apply_if_finite "
                "inside: distribute(apply_if_finite(optimizer, ...), ...)"
            )
        branches = [_follow(x, operands, axis_names, given) for x in inner]
        return [chooses or any(results) for results in zip(*branches, strict=True)]
    if eqn.primitive.name == "scan":
        [body] = inner
        # Shapes tell its parts apart: scanned arrays have one more axis outside.
        num_carry = _same_rank(eqn.outvars, body.outvars)
        num_xs = len(inputs) - _same_rank(eqn.invars, body.invars)
        num_consts = len(inputs) - num_carry - num_xs
        consts, carry = inputs[:num_consts], inputs[num_consts:][:num_carry]
        others = inputs[num_consts + num_carry :]
        while True:  # a value that varies after one pass varies in the next
            results = _follow(body, [*consts, *carry, *others], axis_names, given)
            after = [x or y for x, y in zip(carry, results[:num_carry], strict=True)]
            if after == carry:
                return results
            carry = after
    if len(inner) == 1 and len(inner[0].invars) == len(inputs):
        results = _follow(inner[0], inputs, axis_names, given)
        if len(results) == len(eqn.outvars):
            return results
    return everything


def _same_rank(outside: Sequence, inside: Sequence) -> int:
    pairs = zip(outside, inside, strict=True)
    return sum(len(x.aval.shape) == len(y.aval.shape) for x, y in pairs)


def _is_float(x: Var) -> bool:
    return isinstance(x.aval, ShapedArray) and jnp.issubdtype(
        x.aval.dtype, jnp.floating
    )


def _communicates(program: Jaxpr, axis_names: frozenset[Hashable]) -> bool:
    return any(
        (eqn.primitive.name in _COLLECTIVES and _axes(eqn) & axis_names)
        or any(_communicates(x, axis_names) for x in _programs(eqn))
        for eqn in program.eqns
    )


def _axes(eqn: JaxprEqn) -> frozenset[Hashable]:
    axes = eqn.params.get("axes", eqn.params.get("axis_name", ()))
    return frozenset(axes if isinstance(axes, tuple) else (axes,))


def _programs(eqn: JaxprEqn) -> list[Jaxpr]:
    found = []
    for value in eqn.params.values():
        for item in value if isinstance(value, tuple) else (value,):
            item = getattr(item, "jaxpr", item)  # a ClosedJaxpr holds a Jaxpr
            if isinstance(item, Jaxpr):
                found.append(item)
    return found
