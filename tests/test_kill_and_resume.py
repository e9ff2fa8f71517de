"""A run that is killed, wherever that is, is resumed to the same end."""

import json
import subprocess
import sys

import pytest

from experiments.robustness.same_run import bad_lines, differences, end_of
from olsgd_jax.training import Checkpoints, Config, Due, train, write_records
from olsgd_jax.training.components import build


def test_ten_kills_change_nothing():
    done = subprocess.run(
        [sys.executable, "-m", "experiments.kill_and_resume", "--times", "10"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "with 0 differences and 0 damaged" in done.stdout
    rows = [line.split("│") for line in done.stdout.splitlines() if "│" in line]
    assert sum(int(times) for _, _, times, _ in rows) == 10


def run(out, **options):
    config = Config(num_rounds=4, evaluate_every=2, width=4, batch_size=4, **options)
    with Checkpoints(out / "checkpoints") as checkpoints:
        records = train(config, build(config), checkpoints=checkpoints, due=Due(2))
        write_records(out / "run.jsonl", config, records)
    return out


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return run(tmp_path_factory.mktemp("whole"))


def test_runs_of_one_config_come_to_one_end(whole, tmp_path):
    assert differences(end_of(whole), end_of(run(tmp_path))) == []


def test_another_end_is_noticed(whole, tmp_path):
    found = differences(end_of(whole), end_of(run(tmp_path, seed=1)))
    assert found == [f"{x} is not the same" for x in ("records", "state", "facts")]


@pytest.mark.parametrize(
    ("kept", "is_fine"),
    [(["1", "2", "4"], True), (["1", "2", "3", "4"], False), (["4"], False)],
)
def test_checkpoints_too_many_or_too_few_are_noticed(whole, kept, is_fine):
    end = end_of(whole)
    assert end.kept == ["2", "4"]
    found = differences(end, end._replace(kept=kept))
    assert found == ([] if is_fine else [f"kept is {kept}, not ['2', '4']"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text[:-5], "must end with a whole line"),
        (lambda text: text + text.splitlines()[-1] + "\n", "has rounds [2, 4, 4]"),
    ],
)
def test_half_a_line_or_a_round_twice_is_noticed(whole, tmp_path, change, message):
    lines = (whole / "run.jsonl").read_text().splitlines(keepends=True)
    assert bad_lines(whole) == []
    assert json.loads(lines[-1]) == {"outcome": "finished"}
    (tmp_path / "run.jsonl").write_text(change("".join(lines[:-1])))
    [found] = bad_lines(tmp_path)
    assert message in found
