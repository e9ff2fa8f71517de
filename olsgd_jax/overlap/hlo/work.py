"""The work in a part of a schedule: flops, loops and custom kernels.

The count tells a training step from bookkeeping. It is not a model of time.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from olsgd_jax.overlap.hlo.branches import sure_branch
from olsgd_jax.overlap.hlo.flops import flops_of
from olsgd_jax.overlap.hlo.schedule import Instruction, Schedule

# Parts of the names of custom calls that compute; other calls allocate or give hints.
_KERNELS = re.compile(r"cublas|cudnn|triton|mosaic|tpu_custom_call|onednn|flash|gemm")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')


class Work(NamedTuple):
    """The work of some instructions of a schedule."""

    flops: int = 0
    loops: int = 0  # outermost while loops
    kernels: int = 0  # custom calls that compute, but whose flops are unknown


def work_of(schedule: Schedule, instructions: Iterable[Instruction]) -> Work:
    """Adds up the work of instructions, and of the computations that they call."""
    return add_work(_work(schedule, instruction) for instruction in instructions)


def add_work(parts: Iterable[Work]) -> Work:
    """Adds up work field by field.

    >>> add_work([Work(flops=2, loops=1), Work(flops=3)])
    Work(flops=5, loops=1, kernels=0)
    """
    return Work(*map(sum, zip(Work(), *parts, strict=True)))


def trip_count(schedule: Schedule, loop: Instruction) -> int:
    """Says how often a while loop runs its body; 1 if the program does not tell.

    The compiler for GPUs prints the count. The one for TPUs does not, so there it is
    read from the condition `i < n`, which `lax.scan` and `lax.fori_loop` from 0 have.
    """
    if known := _TRIPS.search(loop.attributes):
        return int(known[1])
    condition = loop.attribute("condition")
    body = schedule.computations.get((condition or "").lstrip("%"), ())
    limits = [x for x in body if x.opcode == "constant" and x.shape.startswith("s32[]")]
    compares = [x for x in body if x.opcode == "compare"]
    if len(limits) == len(compares) == 1 and compares[0].attribute("direction") == "LT":
        return max(1, int(limits[0].attributes[1:].partition(")")[0]))
    return 1


def loop_work(schedule: Schedule, loop: Instruction, inside: Work) -> Work:
    """Gives the work of a whole loop from the work of one pass through its body."""
    trips = trip_count(schedule, loop)
    return Work(trips * inside.flops, loops=1, kernels=trips * inside.kernels)


def _work(schedule: Schedule, instruction: Instruction) -> Work:
    inside = [
        work_of(schedule, schedule.computations.get(name, ()))
        for name in instruction.called
    ]
    match instruction.opcode:
        case "dot" | "convolution":
            return Work(flops=flops_of(instruction))
        case "custom-call":
            target = instruction.attribute("custom_call_target") or ""
            flops = flops_of(instruction)
            return Work(flops, kernels=int(not flops and bool(_KERNELS.search(target))))
        case "while":
            return loop_work(schedule, instruction, add_work(inside))
        case "conditional":  # if the branch is unknown, count the least work
            if taken := sure_branch(schedule, instruction):
                return inside[instruction.called.index(taken)]
            return Work(*map(min, zip(*inside, strict=True)))
    return add_work(inside)
