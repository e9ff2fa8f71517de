"""The house of the experiments: commands on the first floor, the rest in rooms."""

import ast
import importlib
import pathlib

import pytest

import experiments

ROOT = pathlib.Path(experiments.__file__).parent
# A room imports only from lines above its own, and never from a command.
ROOMS = """
examples cli links
processes pages
paper language
measured planning robustness tuning
"""
LEVEL = {
    room: level for level, line in enumerate(ROOMS.split("\n")) for room in line.split()
}
COMMANDS = sorted(ROOT.glob("*.py"))
MODULES = sorted(path for room in LEVEL for path in (ROOT / room).glob("*.py"))


def imports_of(path):
    """The first names below `experiments` that a file imports from."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "experiments":
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            package, _, rest = node.module.partition(".")
            if package == "experiments":
                yield rest.partition(".")[0]


def test_every_room_has_its_place_and_its_purpose():
    rooms = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert rooms == LEVEL.keys()
    for room in rooms:
        assert importlib.import_module(f"experiments.{room}").__doc__


@pytest.mark.parametrize("path", COMMANDS, ids=lambda path: path.stem)
def test_the_first_floor_has_commands_alone(path):
    if path.stem != "__init__":
        assert "\ndef main(" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_a_room_imports_only_from_itself_and_from_rooms_above(path):
    room = path.parent.name
    for imported in imports_of(path):
        assert imported in LEVEL, f"imports the command {imported}"
        assert imported == room or LEVEL[imported] < LEVEL[room], imported
