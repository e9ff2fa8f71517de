"""Launch: processes start together, end together, and leave nothing behind."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from experiments.processes.exit_reason import JAX_ENDED_IT

ROOT = pathlib.Path(__file__).parents[1]
LAUNCH = [sys.executable, "-m", "experiments.launch", "--grace", "2", "--processes"]
WAIT = "while :; do sleep 0.1; done"


def command(num_processes, script):
    return [*LAUNCH, str(num_processes), "--", "sh", "-c", script]


def run(num_processes, script):
    return subprocess.run(
        command(num_processes, script),
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
    )


@pytest.fixture
def mark(monkeypatch):
    """A word in the environment of all that a test starts."""
    word = f"{os.getpid()}-{time.monotonic_ns()}"
    monkeypatch.setenv("OLSGD_TEST_LAUNCH", word)
    return f"OLSGD_TEST_LAUNCH={word}\0".encode()


def are_running(mark):
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            is_zombie = " Z " in (path / "stat").read_text()
            if mark in (path / "environ").read_bytes() and not is_zombie:
                found.append(path.name)
        except OSError:  # it has just ended
            pass
    return found


def all_end(mark, seconds=5):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and are_running(mark):
        time.sleep(0.1)
    return not are_running(mark)


def test_lines_bear_the_number_of_their_process():
    script = "echo $OLSGD_PROCESS_ID of $OLSGD_NUM_PROCESSES at $OLSGD_COORDINATOR"
    done = run(3, f"{script}; printf '[x] end' >&2")
    assert done.returncode == 0
    lines, places = zip(
        *(x.split(" at ") for x in done.stdout.splitlines()), strict=True
    )
    assert sorted(lines) == ["[0] 0 of 3", "[1] 1 of 3", "[2] 2 of 3"]
    assert len(set(places)) == 1
    assert places[0].startswith("127.0.0.1:")
    assert sorted(done.stderr.splitlines()) == [f"[{i}] [x] end" for i in range(3)]


@pytest.mark.parametrize(
    ("failure", "status", "how"),
    [("exit 7", 7, "with status 7"), ("kill -SEGV $$", 139, "by SIGSEGV")],
)
def test_one_that_fails_ends_all(mark, failure, status, how):
    # The others have children of their own, and one of them does not want to end.
    script = f"""
    if [ $OLSGD_PROCESS_ID = 1 ]; then sleep 0.5; {failure}; fi
    if [ $OLSGD_PROCESS_ID = 2 ]; then trap '' TERM; fi
    sleep 100 & {WAIT}
    """
    done = run(3, script)
    assert done.returncode == status
    assert f"[launch] process 1 ended first, {how}; all others are" in done.stderr
    assert all_end(mark)


def test_one_that_ended_because_of_another_is_not_the_cause(mark):
    cause = "sleep 1; exit 7"
    done = run(2, f"if [ $OLSGD_PROCESS_ID = 0 ]; then exit 76; fi; {cause}")
    assert done.returncode == 7
    assert "[launch] process 1 ended first, with status 7; all others" in done.stderr
    assert all_end(mark)


def test_the_cause_is_ended_if_it_does_not_end_by_itself(mark):
    done = run(2, f"if [ $OLSGD_PROCESS_ID = 0 ]; then exit 76; fi; {WAIT}")
    assert done.returncode == 76
    assert all_end(mark)


def test_why_jax_ended_a_process_is_said_last():
    text = f"{JAX_ENDED_IT} errors: Task 1 heartbeat timeout."
    end = f"echo '{text}' >&2; kill -ABRT $$"
    done = run(2, f"if [ $OLSGD_PROCESS_ID = 0 ]; then {end}; fi; {WAIT}")
    assert done.returncode == 128 + signal.SIGABRT
    *_, first, last = done.stderr.splitlines()
    assert first == "[launch] process 0 ended first, by SIGABRT; all others are ended"
    assert last.startswith("[launch] JAX ended process 0: process 1 died, hung or lost")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_are_passed_on(mark, number):
    name = number.name.removeprefix("SIG")
    script = f"trap 'echo got {name}; exit 0' {name}; echo ready; {WAIT}"
    process = subprocess.Popen(
        command(2, script), stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert process.stdout is not None
    assert "ready" in process.stdout.readline() + process.stdout.readline()
    process.send_signal(number)
    output, _ = process.communicate(timeout=30)
    assert sorted(output.splitlines())[-2:] == [f"[0] got {name}", f"[1] got {name}"]
    assert process.returncode == 128 + number
    assert all_end(mark)


def test_processes_have_time_to_stop_so_that_they_can_be_resumed(mark):
    script = f"trap 'sleep 3; echo saved; exit 75' TERM; echo ready; {WAIT}"
    process = subprocess.Popen(
        command(2, script), stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert process.stdout is not None
    assert "ready" in process.stdout.readline() + process.stdout.readline()
    process.terminate()
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 75
    assert sorted(output.splitlines())[-2:] == ["[0] saved", "[1] saved"]
    assert all_end(mark)


def test_processes_that_can_be_resumed_end_by_themselves(mark):
    done = run(2, "sleep $OLSGD_PROCESS_ID; echo saved; exit 75")
    assert done.returncode == 75
    assert done.stdout.splitlines() == ["[0] saved", "[1] saved"]
    assert "process 0 was asked to stop, and can go on with --resume" in done.stderr
    assert all_end(mark)


def test_nothing_outlives_a_launch_that_is_killed(mark):
    python = f"{sys.executable} -c 'import time; print(1, flush=True); time.sleep(99)'"
    process = subprocess.Popen(
        command(2, f"exec {python}"), stdout=subprocess.PIPE, cwd=ROOT
    )
    assert process.stdout is not None
    for _ in range(2):
        process.stdout.readline()
    assert len(are_running(mark)) == 3
    process.kill()
    process.communicate(timeout=30)
    assert all_end(mark)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["0", "--", "true"], "--processes must be at least 1, got 0"),
        (["2", "--", "/no/such/file"], "/no/such/file must be a program"),
    ],
)
def test_what_cannot_be_launched_is_said_in_one_line(words, message):
    done = subprocess.run([*LAUNCH, *words], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
