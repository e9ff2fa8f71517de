"""Estimates the flops of one instruction from its shapes.

    dot             2 · result · contracted axes
    convolution     2 · output · kernel / output features

Padding and dilation count as data, so with either of them the estimate is an upper
bound.
"""

import math
import re

from olsgd_jax.overlap.hlo.schedule import Instruction
from olsgd_jax.overlap.hlo.shapes import arrays

# The output and the kernel of cuDNN's calls: an operand's index, or -1 for the result.
_CUDNN = {
    "convForward": (-1, 1),
    "convBiasActivationForward": (-1, 1),
    "convBackwardInput": (0, 1),
    "convBackwardFilter": (1, -1),
}


def flops_of(instruction: Instruction) -> int:
    """Estimates the flops of a dot, a convolution, or a library call that runs one.

    >>> from olsgd_jax.overlap.hlo.schedule import Instruction
    >>> shapes = ("f32[8,32]{1,0}", "f32[32,16]{1,0}")
    >>> dot = Instruction(
    ...     "y", "dot", "f32[8,16]", ("x", "w"), shapes, (), "lhs_contracting_dims={1}"
    ... )
    >>> flops_of(dot) == 2 * 8 * 32 * 16
    True
    """
    library, _, call = (instruction.attribute("custom_call_target") or "").partition(
        "$"
    )
    if instruction.opcode == "dot" or library.startswith("__cublas"):
        return _dot(instruction)
    if instruction.opcode == "convolution":
        return _convolution(instruction, output=-1, kernel=1)
    if library == "__cudnn" and call in _CUDNN:
        return _convolution(instruction, *_CUDNN[call])
    return 0


def _dot(instruction: Instruction) -> int:
    left = _dimensions(instruction, 0)
    # A library call writes it in its backend_config, as "...":["1"].
    found = re.search(
        r'lhs_contracting_dim(?:s=\{|ensions":\[)([\d,"]*)', instruction.attributes
    )
    axes = re.findall(r"\d+", found[1]) if found else ()
    summed = math.prod(left[int(axis)] for axis in axes)
    return 2 * math.prod(_dimensions(instruction, -1)) * summed


def _convolution(instruction: Instruction, output: int, kernel: int) -> int:
    labels = instruction.attribute("dim_labels") or ""  # as in b01f_01io->b01f
    axes = labels.partition("_")[2].partition("->")[0]
    sizes = _dimensions(instruction, kernel)
    summed = math.prod(
        size for size, axis in zip(sizes, axes, strict=True) if axis != "o"
    )
    return 2 * math.prod(_dimensions(instruction, output)) * summed


def _dimensions(instruction: Instruction, operand: int) -> tuple[int, ...]:
    """Gives the dimensions of an operand, or of the result (a tuple's first array)."""
    shape = instruction.shape if operand < 0 else instruction.inputs[operand]
    return arrays(shape)[0][1]
