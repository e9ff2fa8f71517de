"""Parses printed shapes: arrays, tuples of arrays, and their sizes."""

import math
import re

_ARRAY = re.compile(r"\b([a-z]+\d*(?:e\dm\d\w*)?)\[([\d,<=]*)\]")


def arrays(shape: str) -> list[tuple[str, tuple[int, ...]]]:
    """Lists the arrays of a shape as (dtype, dimensions).

    >>> arrays("(f32[8,128]{1,0:T(8,128)S(1)}, /*index=1*/u32[])")
    [('f32', (8, 128)), ('u32', ())]
    """
    return [
        (dtype, tuple(int(x.lstrip("<=")) for x in dims.split(",") if x))
        for dtype, dims in _ARRAY.findall(shape)
    ]


def shape_bytes(shape: str) -> int:
    """Adds up the sizes of a shape's arrays, without padding.

    >>> shape_bytes("(f32[8,128]{1,0}, bf16[2])")
    4100
    """
    return sum(math.prod(dims) * _bits(dtype) // 8 for dtype, dims in arrays(shape))


def _bits(dtype: str) -> int:
    """Gives the bits of one element: the first number in its type's name."""
    width = re.search(r"\d+", dtype)
    if dtype.startswith(("token", "opaque")):
        return 0
    return int(width[0]) if width else 8  # pred is stored in a byte
