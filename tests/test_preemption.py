"""A run that is asked to stop saves itself, and goes on as if nobody had asked."""

import argparse
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time

import jax
import pytest
from rich.console import Console

from experiments.cli.output import describe_stop
from experiments.launch import end_all, free_coordinator, start
from experiments.robustness.same_run import end_of
from olsgd_jax.training import Checkpoints, Config, PreemptedError, Preemption, train
from olsgd_jax.training.cluster import preemption
from olsgd_jax.training.cluster.channel import Channel
from olsgd_jax.training.cluster.preemption import RESUMABLE

ROOT = pathlib.Path(__file__).parents[1]
TRAIN = [sys.executable, "-m", "experiments.train", "--width", "4", "--batch-size", "4"]
TRAIN += ["--num-workers", "2", "--evaluate-every", "20"]
LAUNCH = [sys.executable, "-m", "experiments.launch", "--processes", "2", "--"]
CONFIG = Config(width=8, num_workers=2, batch_size=8, num_rounds=6, evaluate_every=3)


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")


def without_seconds(records):
    return [record._replace(seconds=0.0) for record in records]


def test_a_signal_ends_the_run_after_its_round_and_handlers_are_put_back(
    tmp_path, capfd
):
    before = [signal.getsignal(x) for x in (signal.SIGINT, signal.SIGTERM)]
    with Checkpoints(tmp_path) as checkpoints, Preemption() as preempted:
        records = train(CONFIG, checkpoints=checkpoints, preempted=preempted)
        first = next(records)
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(PreemptedError, match="after round 4, which is saved"):
            next(records)
        assert (tmp_path / "4").is_dir()  # written, although nothing is closed yet
    assert [signal.getsignal(x) for x in (signal.SIGINT, signal.SIGTERM)] == before
    assert "SIGTERM: the run stops after this round" in capfd.readouterr().err
    with Checkpoints(tmp_path) as checkpoints:
        records = without_seconds(train(CONFIG, checkpoints=checkpoints))
    assert records == without_seconds(train(CONFIG))
    assert records[:1] == without_seconds([first])


def test_nobody_is_asked_after_the_last_round():
    asked = []
    list(train(CONFIG, preempted=lambda: bool(asked.append(1))))
    assert len(asked) == CONFIG.num_rounds - 1


WAITING = """
import time
from olsgd_jax.training import Preemption
with Preemption() as preempted:
    print("ready", flush=True)
    while not preempted():
        time.sleep(0.01)
    print("asked", flush=True)
    time.sleep(100)
"""


def test_a_second_sigint_ends_the_process_at_once():
    process = subprocess.Popen(
        [sys.executable, "-c", WAITING], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    for line in (b"ready\n", b"asked\n"):
        assert process.stdout.readline() == line
        process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == -signal.SIGINT


# One is five times as fast as another, and they do not wait for each other.
COUNTING = """
import time
from olsgd_jax.training import Preemption, join, meet
process, num_calls = join(), 1
meet()
with Preemption() as preempted:
    while not preempted():
        num_calls += 1
        if num_calls == 20:
            print("ready", flush=True)
        time.sleep(0.01 + 0.04 * process.id)
    print("calls:", num_calls)
    meet()
"""


def test_processes_agree_although_one_of_them_is_asked():
    processes = start([sys.executable, "-c", COUNTING], 2, free_coordinator())
    try:
        assert processes[0].stdout is not None
        while b"ready" not in processes[0].stdout.readline():
            assert processes[0].poll() is None
        os.kill(processes[0].pid, signal.SIGTERM)  # the one that is ahead
        written = [x.communicate(timeout=60)[0].decode() for x in processes]
    finally:
        end_all(processes)
    counts = [re.search(r"calls: (\d+)", text) for text in written]
    assert counts[0][1] == counts[1][1]
    assert int(counts[0][1]) >= 20  # it is asked between two calls


# Process 1 computes for long when process 0 is asked.
COMPUTING = """
import signal, time
from olsgd_jax.training import Preemption, join, meet
process = join()
meet()
with Preemption() as preempted:
    if process.id == 1:
        time.sleep(8)
    else:
        signal.raise_signal(signal.SIGTERM)
    begun = time.monotonic()
    print("stops:", preempted(), "seconds:", time.monotonic() - begun)
    meet()
"""


def test_a_process_that_computes_still_takes_part_in_the_agreement():
    processes = start([sys.executable, "-c", COMPUTING], 2, free_coordinator())
    try:
        written = [x.communicate(timeout=60)[0].decode() for x in processes]
    finally:
        end_all(processes)
    for text in written:
        found = re.search(r"stops: True seconds: (.*)", text)
        assert float(found[1]) < 5


def test_one_that_is_gone_is_not_waited_for(monkeypatch):
    own, other = socket.socketpair()
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(preemption, "current_channel", lambda: Channel(0, [own]))
    with own, Preemption() as preempted:
        signal.raise_signal(signal.SIGTERM)
        other.close()
        message = "must stay connected to stop together, got 1 of 2"
        with pytest.raises(ConnectionError, match=message):
            preempted()


def test_processes_that_did_not_join_cannot_agree(monkeypatch):
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    message = "must be connected by join to stop together, got 2 that were not"
    with pytest.raises(RuntimeError, match=message):
        Preemption().__enter__()


def rows(out):
    """All of a file of records but the times."""
    lines = (out / "run.jsonl").read_text().splitlines()
    return [{**json.loads(line), "seconds": 0.0} for line in lines]


def run_to_a_signal(command, number):
    """Sends a signal when the first record is there; gives what was printed."""
    process = subprocess.Popen(
        [*command, "--num-rounds", "1000000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT,
    )
    file = pathlib.Path(command[-1]) / "run.jsonl"
    while not (file.exists() and len(file.read_text().splitlines()) > 1):
        assert process.poll() is None
        time.sleep(0.1)
    process.send_signal(number)
    written, _ = process.communicate(timeout=60)
    assert process.returncode == RESUMABLE, written
    return " ".join(written.split())


def run(command, *options):
    done = subprocess.run(
        [*command, *options], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("before", "number"), [([], signal.SIGTERM), (LAUNCH, signal.SIGINT)]
)
def test_a_command_that_gets_a_signal_goes_on_to_the_same_end(before, number, tmp_path):
    stopped, whole = tmp_path / "stopped", tmp_path / "whole"
    command = [*before, *TRAIN, "--out"]
    written = run_to_a_signal([*command, str(stopped)], number)
    said = re.search(r"Stopped after round (\d+), which is saved .* --resume", written)
    assert said, written
    options = ["--num-rounds", str(int(said[1]) + 3)]
    resumed = run([*command, str(stopped), "--resume"], *options)
    assert f"Resuming after round {said[1]}" in resumed
    run([*command, str(whole)], *options)
    assert rows(stopped) == rows(whole)
    assert end_of(stopped).state == end_of(whole).state


def test_what_is_not_saved_is_not_said_to_be_resumable(capsys):
    args = argparse.Namespace(out=pathlib.Path("out"))
    status = describe_stop(PreemptedError(3, is_saved=False), args, Console())
    assert status == 1
    assert "Stopped after round 3. Nothing was saved" in capsys.readouterr().out
