"""Which branch of a conditional runs, where the program itself says so.

A branch is chosen by its number. Where that is a constant, perhaps one that a loop
hands on from pass to pass, there is no choice to wait for.
"""

from olsgd_jax.overlap.hlo.schedule import Instruction, Schedule

_HANDED_ON = ("convert", "copy", "bitcast")


def sure_branch(schedule: Schedule, conditional: Instruction) -> str | None:
    """The computation that runs in any case; None where the program does not say.

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
        branches = branches[::-1]  # printed are that for true, and that for false
    place = int({"false": "0", "true": "1"}.get(chosen, chosen))
    # Any number that no branch has stands for the last one.
    return branches[place if 0 <= place < len(branches) else -1]


def _constant(schedule: Schedule, name: str) -> str | None:
    """The value of an instruction as it is printed, if it is a constant."""
    home, found = _find(schedule, name)
    while found and found.opcode in _HANDED_ON:
        home, found = _find(schedule, found.operands[0])
    if found and found.opcode == "constant":
        return found.attributes[1:].partition(")")[0]
    index = _place_in_state(schedule, found)
    first = index is not None and _first_in_state(schedule, home, index)
    return _constant(schedule, first) if first else None


def _place_in_state(schedule: Schedule, found: Instruction | None) -> int | None:
    """Which part of what its computation is given an instruction is."""
    if not found or found.opcode != "get-tuple-element":
        return None
    _, source = _find(schedule, found.operands[0])
    is_part = source is not None and source.opcode == "parameter"
    return int(found.attribute("index") or 0) if is_part else None


def _first_in_state(schedule: Schedule, body: str, index: int) -> str | None:
    """What a loop starts with at a place of its state that no pass changes."""
    for computation in schedule.computations.values():
        for loop in computation:
            if loop.opcode != "while" or loop.attribute("body") != f"%{body}":
                continue
            _, after = _find(schedule, schedule.computations[body][-1].operands[index])
            _, state = _find(schedule, loop.operands[0])
            if state is None or state.opcode != "tuple":
                return None
            kept = _place_in_state(schedule, after) == index
            return state.operands[index] if kept else None
    return None


def _find(schedule: Schedule, name: str) -> tuple[str, Instruction | None]:
    """An instruction, and where it is; compilers use no name twice."""
    for home, computation in schedule.computations.items():
        for instruction in computation:
            if instruction.name == name:
                return home, instruction
    return "", None
