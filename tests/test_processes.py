"""Workers in several real processes, over gloo, give the numbers of one process."""

import functools
import pathlib
import socket
import subprocess
import sys

import numpy as np
import pytest

SCRIPT = pathlib.Path(__file__).with_name("processes.py")


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@functools.cache
def numbers_of(num_processes):
    """Where the rounds end, by driver, and under "read" the examples of process 0."""
    port = free_port()
    processes = [
        subprocess.Popen(
            [sys.executable, SCRIPT, str(port), str(i), str(num_processes)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=SCRIPT.parent.parent,
            env={"PYTHONPATH": ".", "PATH": ""},
            text=True,
        )
        for i in range(num_processes)
    ]
    try:
        results = [process.communicate(timeout=120) for process in processes]
    finally:
        for process in processes:
            process.kill()
    for process, (_, errors) in zip(processes, results, strict=True):
        assert process.returncode == 0, errors
    lines = [x.split() for x in results[0][0].splitlines()]
    known = ("host", "fused", "read")
    return {x[0]: np.array(x[1:], float) for x in lines if x[0] in known}


@pytest.mark.parametrize("num_processes", [2, 3])
def test_processes_train_as_one_does(num_processes):
    for driver in ("host", "fused"):
        here, expected = numbers_of(num_processes)[driver], numbers_of(1)[driver]
        np.testing.assert_allclose(here, expected, atol=1e-12)


@pytest.mark.parametrize("num_processes", [1, 2, 3])
def test_both_drivers_give_the_same_bits(num_processes):
    params = numbers_of(num_processes)
    np.testing.assert_array_equal(params["host"], params["fused"])


@pytest.mark.parametrize("num_processes", [1, 2, 3])
def test_a_process_reads_the_examples_of_its_own_workers_once(num_processes):
    # Three for each of the six workers, of which it has the first few.
    read = numbers_of(num_processes)["read"]
    np.testing.assert_array_equal(read, np.arange(18 // num_processes))
