"""The pullback that EASGD and Overlap Local-SGD share: x ← x − α (x − z)."""

import jax

from olsgd_jax.types import Params


def pull(params: Params, anchor: Params, pullback: float | jax.Array) -> Params:
    """Moves a model by the fraction `pullback` (α) of its distance to the anchor (z).

    >>> pull(1.0, 3.0, pullback=0.5)
    2.0
    """
    return jax.tree.map(lambda x, z: x - pullback * (x - z), params, anchor)
