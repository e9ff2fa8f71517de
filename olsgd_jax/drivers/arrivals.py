"""Finds out which results of a program do not need all of its inputs."""

from jax.extend.core import Jaxpr, Literal, Var


def last_needed(program: Jaxpr, arrivals: list[int]) -> list[int]:
    """Gives, for every result of a program, when the last input it needs arrives.

    Args:
      program: the program to analyse.
      arrivals: when each of its inputs arrives, counted from 0.

    >>> import jax
    >>> program = jax.make_jaxpr(lambda x, y, z: (x + 1, x * y, z))(1.0, 2.0, 3.0)
    >>> last_needed(program.jaxpr, [0, 1, 2])
    [0, 1, 2]
    """
    known = dict(zip(program.invars, arrivals, strict=True))

    def when(x: Literal | Var) -> int:
        return 0 if isinstance(x, Literal) else known.get(x, 0)

    for equation in program.eqns:
        needed = [when(x) for x in equation.invars]
        if equation.primitive.name in ("jit", "shard_map"):
            inner = equation.params["jaxpr"]
            made = last_needed(getattr(inner, "jaxpr", inner), needed)
        else:
            made = [max(needed, default=0)] * len(equation.outvars)
        known |= dict(zip(equation.outvars, made, strict=True))
    return [when(x) for x in program.outvars]
