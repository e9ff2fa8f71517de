"""Processes find each other, train as one does, and end together."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import jax
import numpy as np
import pytest

from experiments.killed import left_behind
from experiments.launch import end_all, free_coordinator, start
from experiments.processes.exit_reason import explain_exit
from olsgd_jax.training import FOLLOWED, Layout, Resumed, read_records
from tests.moved import go_on

ROOT = pathlib.Path(__file__).parents[1]
TRAIN = f"exec {sys.executable} -m experiments.train --width 4 --batch-size 4"
MEETING = """
import time
from olsgd_jax.training import end_together, join, meet
process = join(peer_timeout=3)
{}
"""


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")


def run(command, num_processes):
    """Runs a command in processes; their statuses, and what each of them wrote."""
    processes = start(command, num_processes, free_coordinator())
    try:
        written = [b"".join(x.communicate(timeout=100)).decode() for x in processes]
    finally:
        end_all(processes)
    return [x.returncode for x in processes], written


def test_two_processes_train_as_one_does(tmp_path):
    script = [sys.executable, str(ROOT / "tests" / "trained.py")]
    one, two = tmp_path / "one", tmp_path / "two"
    subprocess.run([*script, str(one), "4"], check=True)
    statuses, written = run([*script, str(two), "1"], num_processes=2)
    assert statuses == [0, 0], written
    for name in ("overlap_local_sgd.jsonl", "local_sgd.jsonl"):
        runs = read_records(one / name), read_records(two / name)
        assert runs[1].devices == "2 x cpu"
        for a, b in zip(*(run.records for run in runs), strict=True):
            for field in ("train_loss", "test_loss", "test_accuracy", "spread"):
                values = [getattr(record, field) for record in (a, b)]
                np.testing.assert_allclose(*values, rtol=1e-12, atol=1e-12)
        assert runs[0].records[-1].round == 20


def test_a_run_may_move_between_processes_and_change_its_workers(tmp_path):
    script = [sys.executable, str(ROOT / "tests" / "moved.py"), str(tmp_path / "moved")]
    # Rounds in all, workers, processes, devices of each.
    stages = [(2, 4, 1, 4), (3, 4, 2, 2), (4, 6, 2, 3), (5, 4, 1, 2)]
    for num_rounds, num_workers, num_processes, devices in stages:
        command = [*script, *map(str, (num_rounds, num_workers, devices))]
        statuses, written = run(command, num_processes)
        assert statuses == [0] * num_processes, written
    with jax.numpy_dtype_promotion("standard"):  # as the processes have it
        for num_rounds, num_workers, *_ in stages[1:]:
            go_on(tmp_path / "stayed", num_rounds, num_workers, mapping="vmap")
    moved, stayed = (
        read_records(tmp_path / x / "run.jsonl") for x in ("moved", "stayed")
    )
    assert [x.round for x in moved.records] == [1, 2, 3, 4, 5]
    for a, b in zip(moved.records, stayed.records, strict=True):
        assert a.examples == b.examples
        for field in ("train_loss", "test_loss", "test_accuracy", "spread"):
            values = [getattr(record, field) for record in (a, b)]
            np.testing.assert_allclose(*values, rtol=1e-12, atol=1e-12)
    layouts = [
        Layout(num_workers, None, f"{num_processes * devices} x cpu", num_processes)
        for _, num_workers, num_processes, devices in stages
    ]
    assert moved.resumes == [
        Resumed(stage[0], before, after)
        for stage, before, after in zip(stages, layouts, layouts[1:], strict=False)
    ]
    assert [x.round for x in stayed.resumes] == [3, 4]


def test_process_0_alone_writes(tmp_path):
    # Each has a directory of its own, as on hosts that share none.
    train = f"{TRAIN} --num-rounds 2 --tensorboard --out {tmp_path}/$OLSGD_PROCESS_ID"
    statuses, written = run(["sh", "-c", train], num_processes=2)
    assert statuses == [0, 0], written
    assert [path.name for path in tmp_path.iterdir()] == ["0"]
    files = {path.name for path in (tmp_path / "0").iterdir()}
    assert files == {"run.jsonl", "report.html", "report.md", "events"}
    said = [" ".join(text.split()) for text in written]
    assert ["not the same directory in all" in x for x in said] == [True, False]
    assert read_records(tmp_path / "0" / "run.jsonl").devices == "4 x cpu"
    assert ["Report" in text for text in written] == [True, False]


def test_a_run_of_two_processes_goes_on_to_the_same_records(tmp_path):
    def records(out, *num_rounds):
        for number in num_rounds:
            options = f"--num-rounds {number} --evaluate-every 1 --resume --out {out}"
            statuses, written = run(["sh", "-c", f"{TRAIN} {options}"], 2)
            assert statuses == [0, 0], written
        found = read_records(out / "run.jsonl").records
        return [record._replace(seconds=0.0) for record in found]

    stopped = records(tmp_path / "stopped", 2, 4)
    assert stopped == records(tmp_path / "whole", 4)
    assert [x.round for x in stopped] == [1, 2, 3, 4]
    kept = {x.name for x in (tmp_path / "stopped" / "checkpoints").iterdir()}
    assert {"2", "4"} <= kept


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--num-workers 3", "got 3 workers and 2 processes; use 2 or 4 workers"),
        (
            "--cpu-devices $((OLSGD_PROCESS_ID + 1))",
            "same number of devices, got 1, 2 in processes 0 to 1",
        ),
    ],
)
def test_workers_that_cannot_be_shared_are_an_error_in_all(options, message):
    statuses, written = run(["sh", "-c", f"{TRAIN} {options}"], num_processes=2)
    assert statuses == [2, 2], written
    assert all(message in text for text in written), written


@pytest.mark.parametrize(
    ("victim", "number"),
    [
        (1, signal.SIGKILL),
        (2, signal.SIGSTOP),
        (1, signal.SIGTERM),
        (0, signal.SIGKILL),
    ],
)
def test_a_process_that_dies_or_hangs_ends_the_others(victim, number):
    coordinator = free_coordinator()
    script = MEETING.format("while True: meet()")
    processes = start([sys.executable, "-uc", script], 3, coordinator)
    others = [process for i, process in enumerate(processes) if i != victim]
    try:
        for process in processes:  # gloo says so when the first mean begins
            assert process.stdout is not None
            assert b"connected" in process.stdout.readline()
        os.kill(processes[victim].pid, number)
        written = [process.communicate(timeout=30)[1].decode() for process in others]
    finally:
        end_all(processes)
    assert all(process.returncode for process in others)
    for text in written:
        assert explain_exit(text).startswith(f"process {victim} died, h"), text
    assert left_behind(coordinator) == []


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize(
    ("failure", "status", "said"),
    [
        ("raise KeyError('of its own')", 1, "KeyError: 'of its own'"),
        ("raise SystemExit('of its own')", 1, "of its own"),
        ("raise SystemExit(7)", 7, ""),
    ],
)
def test_one_that_fails_ends_all_within_seconds(victim, failure, status, said):
    fail = f"""
with end_together():
    meet()
    if process.id == {victim}:
        print("failing at", time.time(), flush=True)
        {failure}
    meet()
"""
    script = MEETING.replace("peer_timeout=3", "peer_timeout=60").format(fail)
    statuses, written = run([sys.executable, "-uc", script], num_processes=3)
    seconds = time.time() - float(re.search(r"failing at (.*)", written[victim])[1])
    assert statuses == [status if i == victim else FOLLOWED for i in range(3)], written
    assert seconds < 10
    assert said in written[victim]
    assert "JAX" not in written[victim]
    for i in {0, 1, 2} - {victim}:
        last = f"olsgd_jax: process {victim} failed, so this process ends too"
        assert written[i].splitlines()[-1] == last
        assert "Traceback" not in written[i]


def test_each_says_what_is_wrong_where_all_fail():
    fail = "with end_together():\n    meet()\n    raise SystemExit(4 + process.id)"
    script = [sys.executable, "-uc", MEETING.format(fail)]
    statuses, written = run(script, num_processes=3)
    assert statuses == [4, 5, 6], written
    assert not any("olsgd_jax: " in text or "JAX" in text for text in written)


def test_a_mistake_that_process_0_alone_sees_is_said_once(tmp_path):
    (tmp_path / "run.jsonl").touch()
    command = ["sh", "-c", f"{TRAIN} --num-rounds 2 --out {tmp_path}"]
    statuses, written = run(command, num_processes=2)
    assert statuses == [2, FOLLOWED], written
    assert "--out must not hold a run yet" in written[0]
    last = "olsgd_jax: process 0 failed, so this process ends too"
    assert [x for x in written[1].splitlines() if "Gloo" not in x] == [last]


UNTOUCHED = """
import os, signal, sys
def touched():
    return os.fstat(1), os.fstat(2), sys.excepthook, sys.stderr, dict(os.environ), [
        signal.getsignal(x) for x in range(1, signal.NSIG)
    ]
import jax
before = touched()
from olsgd_jax.training import join, meet
process = join()
assert touched() == before
print("children:", open(f"/proc/self/task/{os.getpid()}/children").read().split())
meet()
"""


def test_join_leaves_the_process_as_it_was():
    statuses, written = run([sys.executable, "-c", UNTOUCHED], num_processes=2)
    assert statuses == [0, 0], written
    assert all("children: []" in text for text in written)


def test_one_may_take_its_time_if_all_meet_in_the_end():
    wait = "meet()\nif process.id == 0: time.sleep(6)\nmeet()"
    script = [sys.executable, "-uc", MEETING.format(wait)]
    statuses, written = run(script, num_processes=2)
    assert statuses == [0, 0], written


def test_who_is_missing_is_said_by_all_who_came():
    coordinator = free_coordinator()
    options = f"--coordinator {coordinator} --num-processes 4 --join-timeout 6"
    command = f"{TRAIN} {options} --process-id"
    came = [
        subprocess.Popen(["sh", "-c", f"{command} {i}"], stderr=subprocess.PIPE)
        for i in (0, 2)
    ]
    written = [process.communicate(timeout=60)[1].decode() for process in came]
    for process, text in zip(came, written, strict=True):
        assert process.returncode == 2
        assert "2 of 4 processes joined within 6 s; missing: 1, 3" in text
        assert "Traceback" not in text
