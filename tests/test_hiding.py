"""Two hosts with a slow link between them, and what the host driver hides of it."""

import subprocess
import sys

import pytest

from experiments import hiding
from experiments.two_hosts import HOSTS, two_hosts, why_not

REASON = why_not()
needs_hosts = pytest.mark.skipif(REASON is not None, reason=str(REASON))


def namespaces():
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True)
    return {line.split()[0] for line in listed.stdout.splitlines()}


@needs_hosts
def test_hosts_are_there_inside_only_and_gone_after_a_failure():
    def fail():
        with two_hosts("1gbit"):
            assert set(HOSTS) <= namespaces()
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert not set(HOSTS) & namespaces()


@needs_hosts
def test_two_processes_can_have_hosts_at_the_same_time():
    code = "from experiments.two_hosts import two_hosts\nwith two_hosts('1gbit'): pass"
    with two_hosts("1gbit"):
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
        assert set(HOSTS) <= namespaces()


@needs_hosts
def test_a_case_is_measured_on_two_hosts():
    seconds = hiding.run_case("1gbit", sync_period=1, repetitions=2)
    assert all(len(times) == 2 for times in seconds.values())
    assert not set(HOSTS) & namespaces()


def test_a_row_says_what_was_hidden():
    seconds = {
        "with": [1.1, 1.2, 1.3],
        "without": [1.0, 1.0, 1.0],
        "mean": [0.8, 0.8, 0.8],
        "with_cpu": [1.0] * 3,
        "without_cpu": [0.9] * 3,
        "mean_cpu": [0.1] * 3,
    }
    row = hiding.row(seconds)
    assert row == ["1000", "800", "1200", "200 (100 to 300)", "75%", "1.20", "100"]
    assert len(hiding.HEADS) == 2 + len(row)
