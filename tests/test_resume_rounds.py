"""Rounds that stop in between go on to the same bits, on all ways through the code."""

import pathlib
import sys

import numpy as np
import pytest

from experiments.launch import end_all, free_coordinator, start
from olsgd_jax.training import Checkpoints
from tests.helpers import by_name
from tests.stopped_rounds import OF_PROCESSES, ROUNDS, WAYS, go_on, states_and_rounds

ROOT = pathlib.Path(__file__).parents[1]


def bits(directory, ways):
    """What the last checkpoint holds, as bytes by name."""
    with Checkpoints(directory) as checkpoints:
        found = checkpoints.restore(states_and_rounds(ways)[0])
    assert found.number == ROUNDS
    return {name: np.asarray(x).tobytes() for name, x in by_name(found.tree).items()}


def differing(a, b):
    assert a.keys() == b.keys()
    return [name for name in a if a[name] != b[name]]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    directory = tmp_path_factory.mktemp("whole")
    go_on(directory, ROUNDS, tuple(WAYS))
    return bits(directory, tuple(WAYS))


@pytest.mark.parametrize("number", range(1, ROUNDS))
def test_rounds_stop_anywhere_and_go_on_to_the_same_bits(whole, number, tmp_path):
    for last in (number, ROUNDS):
        go_on(tmp_path, last, tuple(WAYS))
    assert differing(bits(tmp_path, tuple(WAYS)), whole) == []


def test_so_do_those_of_two_processes(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))

    def in_processes(*directories_and_numbers):
        script = [sys.executable, "-m", "tests.stopped_rounds"]
        command = [*script, *map(str, directories_and_numbers)]
        processes = start(command, 2, free_coordinator())
        try:
            written = [x.communicate(timeout=300)[1].decode() for x in processes]
        finally:
            end_all(processes)
        assert [x.returncode for x in processes] == [0, 0], written

    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    in_processes(whole, ROUNDS, stopped, 1)
    in_processes(stopped, ROUNDS)
    assert differing(*(bits(x, OF_PROCESSES) for x in (whole, stopped))) == []
