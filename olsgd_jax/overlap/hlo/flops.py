"""How much one instruction computes, estimated from its shapes alone.

    dot             2 · result · contracted axes
    convolution     2 · output · kernel / output features

The compiler's padding and dilation count as if they were data, so this is an upper
bound where there is any.
"""

import math
import re

from olsgd_jax.overlap.hlo.schedule import Instruction
from olsgd_jax.overlap.hlo.shapes import arrays

# Where cuDNN's calls have the output and the kernel: -1 is the result, else an operand.
_CUDNN = {
    "convForward": (-1, 1),
    "convBiasActivationForward": (-1, 1),
    "convBackwardInput": (0, 1),
    "convBackwardFilter": (1, -1),
}


def flops_of(instruction: Instruction) -> int:
    """Estimates the flops of a dot, a convolution, or a GPU library's call of one.

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
    # The second spelling is that of a call's backend_config: "...":["1"].
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
    """Of an operand, or of the result; a call's result is first of a tuple."""
    shape = instruction.shape if operand < 0 else instruction.inputs[operand]
    return arrays(shape)[0][1]
