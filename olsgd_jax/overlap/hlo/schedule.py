"""Reads the text of a scheduled program: what the device runs, in order.

A scheduled HLO module is a list of computations. Each is a list of instructions, in
the order in which the device issues them:

    %name = shape opcode(%operand, ...), attribute=..., calls=%computation
"""

import re
from typing import NamedTuple

from olsgd_jax.overlap.hlo.shapes import shape_bytes

_HEADER = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{$")
_INSTRUCTION = re.compile(r"^\s+(ROOT )?%?([\w.\-]+) = (.*)$")
_NAME = re.compile(r"%([\w.\-]+)")
_CALLED = re.compile(
    r"\b(?:calls|to_apply|body|condition|branch_computations|called_computations|"
    r"true_computation|false_computation)=(\{[^}]*\}|%[\w.\-]+)"
)


class Instruction(NamedTuple):
    """One line of a computation."""

    name: str
    opcode: str  # as printed, for example "all-reduce-start"
    shape: str  # of the result, for example "f32[8,128]{1,0}"; a tuple in parentheses
    operands: tuple[str, ...]  # names of instructions of the same computation
    inputs: tuple[str, ...]  # shapes of the operands
    called: tuple[str, ...]  # names of computations
    attributes: str  # the rest of the line, from the operands on

    @property
    def bytes(self) -> int:
        """The size of the result; all arrays count if it is a tuple."""
        return shape_bytes(self.shape)

    def attribute(self, name: str) -> str | None:
        """Gives the value in `name=value`, up to the next comma, brace or space."""
        found = re.search(rf'\b{name}="?\{{?([^,}} "]*)', self.attributes)
        return found[1] if found else None


class Schedule(NamedTuple):
    """A program: its computations by name, and the name of its entry computation.

    >>> from olsgd_jax.overlap import read_schedule
    >>> schedule = read_schedule('''HloModule one_sum, is_scheduled=true
    ... ENTRY %main (x: f32[8]) -> f32[8] {
    ...   %x = f32[8]{0} parameter(0)
    ...   ROOT %sum = f32[8]{0} add(%x, %x)
    ... }''')
    >>> x, total = schedule.computations[schedule.entry]
    >>> total.opcode, total.operands, total.bytes
    ('add', ('x', 'x'), 32)
    """

    entry: str
    computations: dict[str, tuple[Instruction, ...]]


def read_schedule(text: str) -> Schedule:
    """Reads the text that `compiled.as_text()` returns.

    Args:
      text: a compiled module. A module that is only lowered has no schedule yet.

    >>> from olsgd_jax.overlap import read_schedule
    >>> read_schedule("module @jit_f")
    Traceback (most recent call last):
    ValueError: text must be a scheduled HLO module, got 'module @jit_f'; compile
    the program first, and pass compiled.as_text()
    """
    first = text.lstrip().partition("\n")[0]
    if "is_scheduled=true" not in first:
        raise ValueError(
            f"text must be a scheduled HLO module, got {first[:60]!r}; compile the "
            "program first, and pass compiled.as_text()"
        )
    computations: dict[str, list[Instruction]] = {}
    shapes: dict[str, str] = {}  # of the computation being read
    entry = name = ""
    for line in text.splitlines():
        if header := _HEADER.match(line):
            name = header[2]
            entry = name if header[1] else entry
            computations[name], shapes = [], {}
        elif name and (found := _INSTRUCTION.match(line)):
            instruction = _instruction(found[2], found[3], shapes)
            shapes[instruction.name] = instruction.shape
            computations[name].append(instruction)
    if not entry:
        raise ValueError(f"text must have an ENTRY computation, got {first[:60]!r}")
    return Schedule(entry, {name: tuple(x) for name, x in computations.items()})


def _instruction(name: str, rest: str, shapes: dict[str, str]) -> Instruction:
    end = _closing(rest) if rest.startswith("(") else rest.index(" ")
    shape, rest = rest[:end], rest[end:].lstrip()
    opcode, _, _ = rest.partition("(")
    rest = rest[len(opcode) :]
    end = _closing(rest)
    operands = tuple(_NAME.findall(rest[:end]))
    called = " ".join(_CALLED.findall(rest[end:]))
    return Instruction(
        name,
        opcode,
        shape,
        operands,
        inputs=tuple(shapes.get(operand, "") for operand in operands),
        called=tuple(_NAME.findall(called)),
        attributes=rest,
    )


def _closing(text: str) -> int:
    """Finds where the text's first parenthesis closes; gives the index after it."""
    depth = 0
    for index, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return index + 1
    return len(text)
