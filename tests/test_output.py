"""What a run writes is not lost by accident, and goes on when it is asked to."""

import subprocess
import sys

import pytest

from olsgd_jax.training import read_records

SMALL = ["--width", "4", "--batch-size", "4", "--evaluate-every", "2"]


def command(out, *options):
    command = [sys.executable, "-m", "experiments.train", *SMALL, "--out", str(out)]
    return subprocess.run([*command, *options], capture_output=True, text=True)


def records(out):
    run = read_records(out / "run.jsonl")
    assert run.outcome == "finished"
    return [record._replace(seconds=0.0) for record in run.records]


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """A directory with a run of two rounds."""
    out = tmp_path_factory.mktemp("output")
    done = command(out, "--num-rounds", "2", "--tensorboard")
    assert done.returncode == 0, done.stderr
    return out


def test_a_run_is_not_overwritten_unless_asked(out):
    before = (out / "run.jsonl").read_bytes()
    done = command(out, "--num-rounds", "1")
    assert done.returncode == 2
    assert "--resume continues it, --overwrite deletes it" in done.stderr
    assert "Traceback" not in done.stderr
    assert (out / "run.jsonl").read_bytes() == before


def test_a_run_goes_on_with_what_it_had(out, tmp_path):
    done = command(out, "--num-rounds", "4", "--resume", "--tensorboard")
    assert done.returncode == 0, done.stderr
    assert "Resuming after round 2" in done.stdout
    whole = command(tmp_path, "--num-rounds", "4", "--resume")  # there is none yet
    assert whole.returncode == 0, whole.stderr
    assert "No checkpoint to resume from: starting a new run" in whole.stdout
    assert records(out) == records(tmp_path)
    assert len(list((out / "events").iterdir())) == 1  # written anew
    other = command(out, "--num-rounds", "4", "--resume", "--seed", "1")
    assert other.returncode == 2
    assert "cannot resume with a different config: seed" in other.stderr


def test_a_run_goes_on_with_other_workers(out):
    done = command(out, "--num-rounds", "5", "--resume", "--num-workers", "2")
    assert done.returncode == 0, done.stderr
    change = "2 workers instead of 4, 2 x cpu instead of 4 x cpu"
    assert f" with {change}" in " ".join(done.stdout.split())
    assert change in (out / "report.html").read_text()
    [change] = read_records(out / "run.jsonl").resumes
    assert (change.before.num_workers, change.after.num_workers) == (4, 2)


def test_a_run_is_deleted_when_asked(tmp_path):
    (tmp_path / "run.jsonl").write_text("of another time")
    (tmp_path / "checkpoints" / "9").mkdir(parents=True)
    (tmp_path / "notes.txt").write_text("not of a run")
    done = command(tmp_path, "--num-rounds", "2", "--overwrite")
    assert done.returncode == 0, done.stderr
    assert [x.round for x in records(tmp_path)] == [2]
    assert [x.name for x in (tmp_path / "checkpoints").iterdir()] == ["2"]
    assert (tmp_path / "notes.txt").exists()
