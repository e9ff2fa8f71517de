"""Workers in two real processes, over gloo, give the numbers of one process."""

import pathlib
import socket
import subprocess
import sys

import numpy as np

SCRIPT = pathlib.Path(__file__).with_name("two_processes.py")


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def params_of(num_processes):
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
    [line] = [x for x in results[0][0].splitlines() if x.startswith("params")]
    return np.array(line.split()[1:], float)


def test_two_processes_train_as_one_does():
    np.testing.assert_allclose(params_of(2), params_of(1), atol=1e-12)
