"""From a collective's start to its done, and what runs between them.

A collective that may overlap is printed in one of three ways:

    all-reduce-start ... all-reduce-done     GPU; collective-permute also on TPU
    call-start ... call-done                 TPU, on a sparse core (or async-start): the
                                             computation that it calls holds it. If
                                             the start has no operands, it prepares the
                                             sparse core; the call-update that has them
                                             sends
    fusion ... fusion                        TPU v5e: see `carried`

A plain `all-reduce` stops the device until it has ended.
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
    """The collective that an instruction starts, or runs as a whole."""
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
    """Cuts from where all that is sent is handed over to the done of the first.

    That is the first instruction itself, or the last of its updates that has operands
    of its own. If there is no done, the first instruction is all there is.
    """
    start, sent = instructions[0], 0
    names = {start.name}  # of the start and of its updates
    for place, instruction in enumerate(instructions):
        if start.opcode == "fusion" and instruction.opcode == "fusion":
            other = held_collective(schedule, instruction)
            if (
                other
                and chain_of(other) == chain_of(held)
                and role_of(schedule, instruction, other) == "done"
            ):
                return instructions[: place + 1]
        elif names & set(instruction.operands):
            if instruction.opcode.endswith("-update"):
                sent = place if set(instruction.operands) - names else sent
                names.add(instruction.name)
            if instruction.opcode.endswith("-done"):
                return instructions[sent : place + 1]
    return (start,)


def work_between(
    schedule: Schedule, span: tuple[Instruction, ...], held: Instruction
) -> Work:
    """Adds up what runs between a start and its done, the ends of the span."""
    start, between = span[0], span[1:-1]
    if '"is_sync":true' in start.attributes:  # a GPU's way to say that its start waits
        return Work()
    if start.opcode == "fusion":
        return carried_work(schedule, between, chain_of(held))
    return work_of(schedule, between)


def is_blocked(schedule: Schedule, instructions: tuple[Instruction, ...]) -> bool:
    """Whether the last instruction needs anything that computes."""
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
    """Whether anything that computes, behind a span at the start, needs its result."""
    names = {span[-1].name}
    for instruction in instructions[len(span) :]:
        if names & set(instruction.operands):
            if any(work_of(schedule, [instruction])):
                return True
            names.add(instruction.name)
    return False
