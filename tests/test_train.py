"""One run from a command line: dry, watched, and the same on any number of devices."""

import contextlib
import io
import json
import pathlib
import shutil
import struct
import subprocess
import sys
from unittest import mock

import jaxtyping
import numpy as np
import pytest
from tensorboardX.proto.event_pb2 import Event

from experiments import train
from olsgd_jax.training import read_records
from olsgd_jax.training.checkpoints.integrity import write_checksums
from tests.mistakes import run

SMALL = [
    "--width",
    "4",
    "--num-rounds",
    "4",
    "--evaluate-every",
    "2",
    "--batch-size",
    "4",
    "--num-workers",
    "4",
    "--dropout",
    "0.1",
]


def command(*options):
    return subprocess.run(
        [sys.executable, "-m", "experiments.train", *options],
        capture_output=True,
        text=True,
    )


def refused(*options):
    """Gives what a command says that ends with status 2; runs it in this process."""
    written = io.StringIO()
    # As many devices as the tests have, where their number is fixed already.
    words = [*options, "--cpu-devices", "16"]
    with (
        mock.patch.object(jaxtyping.config, "jaxtyping_disable", True),
        contextlib.redirect_stderr(written),
        pytest.raises(SystemExit) as stop,
    ):
        run(train.main, *words)
    assert stop.value.code == 2
    return " ".join(written.getvalue().split())


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The same command twice, and with its 4 workers on 2 devices and on 1."""

    def run(name, *options):
        out = tmp_path_factory.mktemp(name)
        done = command(*SMALL, *options, "--out", str(out))
        assert done.returncode == 0, done.stderr
        return out

    return {
        "first": run("first", "--tensorboard"),
        "again": run("again"),
        "on two": run("two", "--cpu-devices", "2"),
        "on one": run("one", "--cpu-devices", "1"),
    }


def test_a_run_that_draws_nothing_loads_no_matplotlib():
    code = "import sys, experiments.train; assert 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def records(out):
    run = read_records(out / "run.jsonl")
    return [record._replace(seconds=0.0) for record in run.records]


def test_the_same_command_gives_the_same_bits(runs):
    assert len(records(runs["first"])) == 2
    assert records(runs["again"]) == records(runs["first"])
    assert (runs["first"] / "report.html").exists()


@pytest.mark.parametrize(("name", "num_devices"), [("on two", 2), ("on one", 1)])
def test_workers_on_fewer_devices_give_the_same_numbers_to_rounding(
    runs, name, num_devices
):
    first, other = records(runs["first"]), records(runs[name])
    assert read_records(runs[name] / "run.jsonl").devices == f"{num_devices} x cpu"
    for a, b in zip(first, other, strict=True):
        np.testing.assert_allclose(a.train_loss, b.train_loss, rtol=1e-5)
        np.testing.assert_allclose(a.test_loss, b.test_loss, rtol=1e-5)
        np.testing.assert_allclose(a.spread, b.spread, rtol=1e-4)


def events(directory: pathlib.Path):
    """Reads an event file: length, checksum, event, checksum, and so on."""
    [path] = directory.iterdir()
    data, place = path.read_bytes(), 0
    while place < len(data):
        [length] = struct.unpack_from("<Q", data, place)
        yield Event.FromString(data[place + 12 : place + 12 + length])
        place += 12 + length + 4


def test_tensorboard_gets_what_the_records_hold(runs):
    scalars = {
        (event.step, value.tag): value.simple_value
        for event in events(runs["first"] / "events")
        for value in event.summary.value
    }
    for record in records(runs["first"]):
        for tag, expected in {
            "train_loss": record.train_loss,
            "learning_rate": record.learning_rate,
            "test/consensus_accuracy": record.test_accuracy,
        }.items():
            np.testing.assert_allclose(
                scalars[record.examples, tag], expected, rtol=1e-6
            )


def test_a_dry_run_says_what_would_run_and_runs_nothing(tmp_path):
    out = tmp_path / "out"
    done = command(*SMALL, "--dry-run", "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert "sync_period" in done.stdout
    assert "310 parameters; a worker sends 1,240 bytes per round; 16 local steps" in (
        " ".join(done.stdout.split())
    )
    assert "About" in done.stdout
    assert not out.exists()


def test_a_dry_run_needs_no_data():
    options = ["--preset", "cpu", "--width", "1", "--data-dir", "/nowhere"]
    done = command(*options, "--partition", "dirichlet", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "9.0 epochs" in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--keep", "0"], "--keep: must be a whole number of at least 1, got '0'"),
        (["--save-every", "0"], "every must be at least 1, got 0"),
        (["--save-minutes", "0"], "minutes must be in (0, inf), got 0.0"),
        (["--rollbacks", "2"], "need --on-divergence rollback, got stop"),
        (["--on-divergence", "rollback", "--rollbacks", "-1"], "times must be in"),
        (["--strategy", "local_sgd", "--evaluate", "anchor"], "which keeps none"),
        (["--out", "HELD"], "--out must not hold a run yet, got"),
        (["--out", "HELD", "--overwrite", "--keep", "0"], "of at least 1, got '0'"),
    ],
)
@pytest.mark.parametrize("how", ["run", "dry"])
def test_a_dry_run_refuses_what_the_run_refuses(options, message, how, tmp_path):
    held, new = tmp_path / "held", tmp_path / "new"
    held.mkdir()
    (held / "run.jsonl").touch()
    words = ["--out", str(new), *(str(held) if x == "HELD" else x for x in options)]
    words += ["--dry-run"] if how == "dry" else []
    assert message in refused(*SMALL, *words)
    assert [x.name for x in held.iterdir()] == ["run.jsonl"]


def of_another_format(checkpoint):
    sums = checkpoint / "checksums.json"
    sums.write_text(sums.read_text().replace('"format": 2', '"format": 3'))


def without_facts(checkpoint):
    about = checkpoint / "about" / "metadata"
    kept = json.loads(about.read_text())
    del kept["facts"]["layout"]
    about.write_text(json.dumps(kept))
    write_checksums(checkpoint)


def cut_off(checkpoint):
    largest = max(checkpoint.rglob("*"), key=lambda x: x.is_file() and x.stat().st_size)
    largest.write_bytes(largest.read_bytes()[:-1])


def unchanged(checkpoint):
    pass


def tree_of(directory):
    return {x: x.is_file() and x.read_bytes() for x in directory.rglob("*")}


@pytest.fixture
def stopped(runs, tmp_path):
    """The words that resume a run, and its output directory."""
    out = tmp_path / "out"
    shutil.copytree(runs["first"], out)
    return [*SMALL, "--resume", "--out", str(out)], out


@pytest.mark.parametrize(
    ("spoil", "options", "message"),
    [
        (unchanged, [], "Resuming after round 4"),
        (unchanged, ["--num-workers", "2"], "Resuming after round 4"),
        (cut_off, [], "checkpoint OUT/checkpoints/4 is damaged"),
        (shutil.rmtree, [], "No checkpoint to resume from"),
    ],
)
def test_a_dry_run_resumes_as_the_run_would_and_leaves_the_files(
    stopped, spoil, options, message
):
    words, out = stopped
    spoil(out / "checkpoints" / "4")
    before = tree_of(out)
    dry = command(*words, *options, "--dry-run")
    assert tree_of(out) == before
    for done in (dry, command(*words, *options)):
        assert done.returncode == 0, done.stderr
        said = " ".join((done.stdout + done.stderr).split())
        assert message.replace("OUT", str(out)) in said


@pytest.mark.parametrize(
    ("spoil", "options", "message"),
    [
        (unchanged, ["--width", "8"], "width was 4, now 8"),
        (unchanged, ["--save-every", "0"], "every must be at least 1"),
        (of_another_format, [], "OUT/checkpoints/4 has format 3"),
        (without_facts, [], "got one without layout"),
    ],
)
def test_a_dry_run_refuses_to_resume_as_the_run_would(stopped, spoil, options, message):
    words, out = stopped
    spoil(out / "checkpoints" / "4")
    before = tree_of(out)
    for how in (["--dry-run"], []):
        said = refused(*words, *options, *how)
        assert message.replace("OUT", str(out)) in said
    assert tree_of(out) == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--strategy", "adam"], "strategy must be one of sync_sgd"),
        (
            ["--reduction", "low_rank", "--reduction-args", "rank=1.5"],
            "reduction_args: rank must be a whole number, got 1.5",
        ),
        (["--epochs", "2"], "--epochs needs a --preset"),
        (["--model", "resnet8"], "model must be one of mlp for digits"),
        (
            ["--dataset", "cifar10", "--data-dir", "/nowhere"],
            "data_dir must hold cifar10/3.0.2, got /nowhere",
        ),
    ],
)
def test_what_cannot_run_is_said_in_one_line(options, message):
    assert message in refused(*options)


def test_a_run_that_diverges_says_so(tmp_path):
    options = ["--learning-rate", "1e30", "--out", str(tmp_path)]
    done = command(*SMALL, *options)
    assert done.returncode == 1
    assert "train_loss must stay finite" in done.stderr
    assert read_records(tmp_path / "run.jsonl").outcome == "diverged"
