"""A long run: nothing grows, and what grows is noticed."""

import subprocess
import sys

import pytest

from experiments.soak import Look, complaints

FIRST = Look(round=1000, seconds=0, memory=1e8, threads=20, files=6, programs=47)


def test_a_run_needs_no_more_than_it_had(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "experiments.soak", "--rounds=200", "--every=100"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "200 of 200 rounds" in done.stdout


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"memory": 1.06e8}, "memory grew by 6.0%"),
        ({"threads": 21}, "threads went from 20 to 21"),
        ({"files": 7}, "files went from 6 to 7"),
        ({"programs": 48}, "programs went from 47 to 48"),
    ],
)
def test_what_grows_is_said(change, message):
    assert complaints(FIRST, FIRST._replace(**change)) == [message]


def test_little_more_memory_or_less_of_the_others_is_fine():
    last = FIRST._replace(memory=1.04e8, threads=19, files=5)
    assert complaints(FIRST, last) == []
