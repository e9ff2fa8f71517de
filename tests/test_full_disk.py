"""A full disk: what cannot be written is named, and what was written stays."""

import contextlib
import os
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.report import write_report
from olsgd_jax.training import Checkpoints, Config, write_records
from olsgd_jax.training.checkpoints import integrity
from olsgd_jax.training.data.array_cache import cached_arrays

NO_SPACE = "cannot be written: No space left on device"


@pytest.fixture
def disk(tmp_path):
    """A disk of 1,280 kB, of which a checkpoint leaves 1,024 kB to its metadata."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=1280k", "tmpfs", str(tmp_path)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True)
    except OSError as error:
        pytest.skip(f"needs mount: {error}")
    if done.returncode:
        pytest.skip(f"needs the right to mount: {done.stderr.strip()}")
    yield tmp_path
    subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


def fill(disk):
    with contextlib.suppress(OSError), (disk / "filler").open("wb", 0) as file:
        while True:
            file.write(bytes(4096))


def test_records_name_their_file(disk):
    fill(disk)
    with pytest.raises(OSError, match=rf"^{disk}/out/run.jsonl {NO_SPACE}$"):
        write_records(disk / "out" / "run.jsonl", Config(), [])


def test_a_report_names_its_file(disk, tmp_path_factory):
    run = tmp_path_factory.mktemp("run") / "run.jsonl"
    write_records(run, Config(), [])
    fill(disk)
    with pytest.raises(OSError, match=rf"^{disk}/report.html {NO_SPACE}$"):
        write_report(disk / "report.html", [run])


def test_a_cache_of_arrays_names_its_file_and_the_way_out(disk):
    squares = np.zeros(10**6)
    outline = {"squares": jax.ShapeDtypeStruct(squares.shape, squares.dtype)}
    with pytest.raises(OSError, match=r"/squares.npy cannot be written: .*; set XDG_C"):
        cached_arrays(disk, outline, lambda: {"squares": squares})
    assert os.listdir(disk) == []


# What orbax still writes when it gives up finds its event loop closed.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("spare", [2**20, -(10**9)], ids=["before", "while"])
def test_a_checkpoint_is_named_and_those_before_it_stay(disk, monkeypatch, spare):
    # A disk may look large enough, and be full while a checkpoint is written.
    monkeypatch.setattr(integrity, "SPARE", spare)
    small, large = (
        {"w": jnp.arange(9.0)},
        {"w": jax.random.normal(jax.random.key(0), 10**6)},
    )
    message = rf"^checkpoint 2 in {disk} {NO_SPACE}; those before it are as they w"
    with Checkpoints(disk) as checkpoints:
        checkpoints.save(1, small)
        checkpoints.wait()
        with pytest.raises(OSError, match=message):
            [checkpoints.save(2, large), checkpoints.wait()]
        assert (disk / "2.orbax-checkpoint-tmp").exists() == (spare < 0)
    with Checkpoints(disk) as checkpoints:
        found = checkpoints.restore(small)
    assert found.number == 1
    assert found.tree["w"].tolist() == list(range(9))


def test_a_run_ends_with_one_line(disk):
    command = [sys.executable, "-m", "experiments.train", "--out", str(disk / "run")]
    small = ["--batch-size", "4", "--num-workers", "2", "--num-rounds", "5"]
    done = subprocess.run(
        [*command, *small, "--save-every", "1"], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    [line] = done.stderr.splitlines()
    assert line.startswith(f"checkpoint 2 in {disk}/run/checkpoints {NO_SPACE}")
    with Checkpoints(disk / "run" / "checkpoints") as checkpoints:
        assert checkpoints.numbers() == [1]


def test_a_run_of_two_processes_ends_with_one_line(disk):
    fill(disk)
    os.truncate(disk / "filler", os.path.getsize(disk / "filler") - 16384)
    launch = [sys.executable, "-m", "experiments.launch", "--processes", "2", "--"]
    command = [sys.executable, "-m", "experiments.train", "--out", str(disk / "run")]
    small = ["--batch-size", "4", "--num-workers", "2", "--num-rounds", "1000"]
    begun = time.monotonic()
    done = subprocess.run(
        [*launch, *command, *small, "--evaluate-every", "1"],
        capture_output=True,
        text=True,
    )
    assert time.monotonic() - begun < 60
    assert done.returncode == 1
    first, second, third = sorted(done.stderr.splitlines())
    assert first == f"[0] {disk}/run/run.jsonl {NO_SPACE}"  # process 0 alone writes it
    assert second == "[1] olsgd_jax: process 0 failed, so this process ends too"
    assert third.startswith("[launch] process 0 ended first, with status 1")
