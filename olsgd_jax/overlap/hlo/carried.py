"""Collectives that fusions carry, as on TPU v5e.

The first fusion holds the collective and calls AsyncCollectiveStart, and the last one
calls AsyncCollectiveDone. Each fusion in between runs a step of the collective next to
its own computation. The collective advances only in those steps, so only the work of
those fusions counts as overlap, not everything between start and done.
"""

from collections.abc import Iterable
from typing import Literal

from olsgd_jax.overlap.hlo.schedule import Instruction, Schedule
from olsgd_jax.overlap.hlo.work import Work, add_work, loop_work, work_of

KINDS = (
    "all-reduce",
    "reduce-scatter",
    "all-gather",
    "collective-permute",
    "all-to-all",
    "ragged-all-to-all",
    "collective-broadcast",
)
"""The opcodes of collectives."""

Role = Literal["start", "step", "done", "whole"]
"""What a fusion does with its collective; "whole" runs all of it at once."""


def held_collective(schedule: Schedule, instruction: Instruction) -> Instruction | None:
    """Finds the collective in the computations that an instruction calls."""
    for name in instruction.called:
        for inner in schedule.computations.get(name, ()):
            if inner.opcode in KINDS:
                return inner
            if deeper := held_collective(schedule, inner):
                return deeper
    return None


def role_of(schedule: Schedule, fusion: Instruction, held: Instruction) -> Role:
    """Says what a fusion does with the collective that it holds."""
    targets = {
        inner.attribute("custom_call_target")
        for name in fusion.called
        for inner in schedule.computations.get(name, ())
    }
    if "AsyncCollectiveStart" in targets:
        return "start"
    if "AsyncCollectiveDone" in targets:
        return "done"
    return "step" if "async_collective_fusion_config" in held.attributes else "whole"


def chain_of(held: Instruction) -> str:
    """Identifies a collective; its copies in several fusions share the identifier."""
    return f"{held.attribute('channel_id')}/{held.attribute('chain_id')}"


def carried_work(
    schedule: Schedule, instructions: Iterable[Instruction], chain: str
) -> Work:
    """Adds up the work of the fusions that carry a collective.

    Args:
      schedule: the program.
      instructions: the instructions between start and done.
      chain: the collective's identifier from `chain_of`.
    """
    return add_work(_carriers(schedule, instructions, chain))


def _carriers(
    schedule: Schedule, instructions: Iterable[Instruction], chain: str
) -> list[Work]:
    """Lists the work of each fusion, or loop of fusions, that carries a collective."""
    found = []
    for instruction in instructions:
        if instruction.opcode == "while":
            bodies = (schedule.computations.get(x, ()) for x in instruction.called)
            inside = sum((_carriers(schedule, x, chain) for x in bodies), [])
            if inside:
                found.append(loop_work(schedule, instruction, add_work(inside)))
        elif instruction.opcode == "fusion":
            held = held_collective(schedule, instruction)
            if held and chain_of(held) == chain:
                found.append(work_of(schedule, [instruction]))
    return found
