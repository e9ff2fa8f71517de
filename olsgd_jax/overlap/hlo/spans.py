"""The span of a collective, from its start to its done, and the work inside it.

A collective that can overlap is printed in one of three ways:

    all-reduce-start ... all-reduce-done     GPU; collective-permute also on TPU
    call-start ... call-done                 TPU sparse cores; also async-start. The
                                             called computation holds the collective. A
                                             start without operands only prepares the
                                             core, and a call-update with operands sends
    fusion ... fusion                        TPU v5e: see `carried`

A plain `all-reduce` blocks the device until it is done.
"""

from olsgd_jax.overlap.hlo.carried import (
    KINDS,
    carried_work,
    chain_of,
    held_collective,
    role_of,
)
from olsgd_jax.overlap.hlo.schedule import Instruction, Schedule
from olsgd_jax.overlap.hlo.work import Work, work_of


def started(schedule: Schedule, instruction: Instruction) -> Instruction | None:
    """Finds the collective that an instruction starts, or runs to its end."""
    if instruction.opcode.removesuffix("-start") in KINDS:
        return instruction
    if instruction.opcode not in ("async-start", "call-start", "fusion"):
        return None
    held = held_collective(schedule, instruction)
    if held and instruction.opcode == "fusion":
        starts = role_of(schedule, instruction, held) in ("start", "whole")
        return held if starts else None
    return held


def until_done(
    schedule: Schedule, instructions: tuple[Instruction, ...], held: Instruction
) -> tuple[Instruction, ...]:
    """Cuts out the span of the collective that the first instruction starts.

    The span begins where the last operand is handed over: at the start itself, or at
    its last update with operands of its own. It ends at the done. Without a done, the
    span is the start alone.
    """
    start, first = instructions[0], 0
    names = {start.name}  # of the start and its updates
    for index, instruction in enumerate(instructions):
        if start.opcode == "fusion" and instruction.opcode == "fusion":
            other = held_collective(schedule, instruction)
            if (
                other
                and chain_of(other) == chain_of(held)
                and role_of(schedule, instruction, other) == "done"
            ):
                return instructions[: index + 1]
        elif names & set(instruction.operands):
            if instruction.opcode.endswith("-update"):
                first = index if set(instruction.operands) - names else first
                names.add(instruction.name)
            if instruction.opcode.endswith("-done"):
                return instructions[first : index + 1]
    return (start,)


def work_between(
    schedule: Schedule, span: tuple[Instruction, ...], held: Instruction
) -> Work:
    """Adds up the work between the two ends of a span, its start and its done."""
    start, between = span[0], span[1:-1]
    if '"is_sync":true' in start.attributes:  # on GPUs: the start blocks
        return Work()
    if start.opcode == "fusion":
        return carried_work(schedule, between, chain_of(held))
    return work_of(schedule, between)


def is_blocked(schedule: Schedule, instructions: tuple[Instruction, ...]) -> bool:
    """Whether the last instruction depends on computation in the earlier ones."""
    *before, last = instructions
    needed = set(last.operands)
    for instruction in reversed(before):
        if instruction.name in needed:
            if any(work_of(schedule, [instruction])):
                return True
            needed |= set(instruction.operands)
    return False


def is_needed(
    schedule: Schedule,
    instructions: tuple[Instruction, ...],
    span: tuple[Instruction, ...],
) -> bool:
    """Whether computation after a span, which comes first, depends on its result."""
    names = {span[-1].name}
    for instruction in instructions[len(span) :]:
        if names & set(instruction.operands):
            if any(work_of(schedule, [instruction])):
                return True
            names.add(instruction.name)
    return False
