"""Finds the branch that a conditional takes, if the program fixes it.

A conditional selects a branch by its index. If the index is a constant, or a loop
carries a constant unchanged, the branch is known before the program runs.
"""

from olsgd_jax.overlap.hlo.schedule import Instruction, Schedule

_SAME_VALUE = ("convert", "copy", "bitcast")


def sure_branch(schedule: Schedule, conditional: Instruction) -> str | None:
    """Names the branch that always runs; None if that depends on data.

    >>> from olsgd_jax.overlap import read_schedule
    >>> from olsgd_jax.overlap.hlo.branches import sure_branch
    >>> schedule = read_schedule('''HloModule choice, is_scheduled=true
    ... ENTRY %main (x: f32[8]) -> f32[8] {
    ...   %x = f32[8]{0} parameter(0)
    ...   %one = s32[] constant(1)
    ...   ROOT %y = f32[8]{0} conditional(%one, %x, %x), branch_computations={%a, %b}
    ... }''')
    >>> sure_branch(schedule, schedule.computations["main"][-1])
    'b'
    """
    chosen = _constant(schedule, conditional.operands[0])
    if chosen is None:
        return None
    branches = conditional.called
    if "branch_computations" not in conditional.attributes:
        branches = branches[::-1]  # the true branch is printed before the false one
    index = int({"false": "0", "true": "1"}.get(chosen, chosen))
    # HLO takes the last branch if the index is out of range.
    return branches[index if 0 <= index < len(branches) else -1]


def _constant(schedule: Schedule, name: str) -> str | None:
    """Gives the printed value of an instruction if it is a constant, else None."""
    computation, found = _find(schedule, name)
    while found and found.opcode in _SAME_VALUE:
        computation, found = _find(schedule, found.operands[0])
    if found and found.opcode == "constant":
        return found.attributes[1:].partition(")")[0]
    index = _parameter_index(schedule, found)
    initial = index is not None and _loop_constant(schedule, computation, index)
    return _constant(schedule, initial) if initial else None


def _parameter_index(schedule: Schedule, found: Instruction | None) -> int | None:
    """Gives an instruction's index in the parameter tuple if it is an element of it."""
    if not found or found.opcode != "get-tuple-element":
        return None
    _, source = _find(schedule, found.operands[0])
    is_element = source is not None and source.opcode == "parameter"
    return int(found.attribute("index") or 0) if is_element else None


def _loop_constant(schedule: Schedule, body: str, index: int) -> str | None:
    """Names the initial value of a loop's state at an index that the body keeps."""
    for computation in schedule.computations.values():
        for loop in computation:
            if loop.opcode != "while" or loop.attribute("body") != f"%{body}":
                continue
            _, after = _find(schedule, schedule.computations[body][-1].operands[index])
            _, state = _find(schedule, loop.operands[0])
            if state is None or state.opcode != "tuple":
                return None
            is_kept = _parameter_index(schedule, after) == index
            return state.operands[index] if is_kept else None
    return None


def _find(schedule: Schedule, name: str) -> tuple[str, Instruction | None]:
    """Finds an instruction and its computation; names are unique in a program."""
    for computation, instructions in schedule.computations.items():
        for instruction in instructions:
            if instruction.name == name:
                return computation, instruction
    return "", None
