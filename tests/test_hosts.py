"""Hosts on one switch: who reaches whom, how fast, and what is left of them."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from experiments.links.hosts import (
    NAMES,
    SWITCH,
    UNSHAPED,
    address,
    bits_per_second,
    hosts,
    why_not,
)
from experiments.processes.host_processes import run_on_all, sent_bytes

REASON = why_not()
needs_hosts = pytest.mark.skipif(REASON is not None, reason=str(REASON))


def transfer(num_hosts, size, senders, receivers):
    """What `transfer.py` prints on every host: from whom, first and last time."""
    command = [sys.executable, "-m", "tests.transfer", f"{size}", senders, receivers]
    return [json.loads(x) for x in run_on_all(command, num_hosts, timeout=120)]


def left_of(names):
    """What of some hosts is still there: namespaces, and files of theirs."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True)
    there = {line.split()[0] for line in listed.stdout.splitlines()}
    files = {path.name for path in pathlib.Path("/etc/netns").glob("*")}
    return (there | files) & set(names)


def num_running(*command):
    """How many processes of the machine run a command."""
    num, line = 0, "\0".join(command).encode() + b"\0"
    for file in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has just ended
            num += file.read_bytes() == line
    return num


@needs_hosts
def test_every_host_reaches_every_other_one():
    with hosts(4, "1gbit"):
        received = transfer(4, 10, "0123", "0123")
    for i, (sources, _, _) in enumerate(received):
        assert sources == [address(j) for j in range(4) if j != i]


@needs_hosts
@pytest.mark.parametrize(
    ("rate", "size", "senders", "receivers"),
    [
        ("200mbit", 10_000_000, "0", "1"),
        ("10mbit", 1_000_000, "01", "2"),  # the link of the one who receives
        ("10mbit", 1_000_000, "2", "01"),  # of the one who sends
    ],
)
def test_a_link_has_the_rate_that_was_asked_for(rate, size, senders, receivers):
    sent, rates = size * len(senders) * len(receivers), []
    for _ in range(3):
        with hosts(3, rate):
            answers = transfer(3, size, senders, receivers)
        first, last = zip(*(x[1:] for x in answers if x[0]), strict=True)
        rates.append(8 * sent / (max(last) - min(first)))
    # Of 1,514 bytes of a frame 1,448 are what was sent. A busy machine may keep senders
    # waiting, so the quickest of three counts.
    expected = bits_per_second(rate) * 1448 / 1514
    assert max(rates) == pytest.approx(expected, rel=0.15)


@needs_hosts
def test_links_that_are_not_shaped_have_no_rate():
    for rate, is_shaped in ((UNSHAPED, False), ("10mbit", True)):
        with hosts(2, rate):
            command = "tc", "-n", NAMES[0], "qdisc", "show"
            shown = subprocess.run(command, capture_output=True, text=True).stdout
        assert ("tbf" in shown) == is_shaped


@needs_hosts
def test_counters_count_what_a_host_sends():
    size = 10_000_000
    with hosts(2, "1gbit"):
        before = [sent_bytes(host) for host in NAMES[:2]]
        transfer(2, size, "0", "1")
        after = [sent_bytes(host) for host in NAMES[:2]]
    sender, receiver = (y - x for x, y in zip(before, after, strict=True))
    assert size < sender < 1.06 * size
    assert 0 < receiver < 0.1 * size  # acknowledgements


@needs_hosts
def test_a_failure_on_one_host_stops_all_and_says_why():
    code = "import os, time\nif os.environ['OLSGD_PROCESS_ID'] == '1': 1 / 0\n"
    code += "time.sleep(60)"
    start = time.monotonic()
    with (
        hosts(2, "1gbit"),
        pytest.raises(RuntimeError, match=r"host 1:\n.*(?s:.)*Zero"),
    ):
        run_on_all([sys.executable, "-c", code], 2, timeout=120)
    assert time.monotonic() - start < 50


@needs_hosts
def test_too_long_is_a_failure():
    with hosts(2, "1gbit"), pytest.raises(RuntimeError, match="took too long"):
        run_on_all([sys.executable, "-c", "import time; time.sleep(60)"], 2, timeout=1)


@needs_hosts
def test_hosts_are_there_inside_only_and_gone_after_a_failure():
    def fail():
        with hosts(3, "1gbit"):
            assert left_of([*NAMES, SWITCH]) == {*NAMES[:3], SWITCH}
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert not left_of([*NAMES, SWITCH])


@needs_hosts
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_hosts_and_what_runs_on_them(number):
    # In a process of its own, while this one has hosts too.
    sleep = f"60.{os.getpid()}"
    code = f"""
from experiments.processes import host_processes
from experiments.links import hosts
with hosts.hosts(2, "1gbit"):
    print(*hosts.NAMES, hosts.SWITCH, flush=True)
    host_processes.run_on_all(["sleep", "{sleep}"], 2, timeout=60)
"""
    with hosts(2, "1gbit"):
        process = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
        )
        with process:
            names = process.stdout.readline().split()
            assert len(left_of(names)) == 3
            while num_running("sleep", sleep) < 2:
                time.sleep(0.05)
            process.send_signal(number)
        assert process.returncode not in (0, None)
        assert not left_of(names)
        assert not num_running("sleep", sleep)
        assert left_of([*NAMES, SWITCH]) == {*NAMES[:2], SWITCH}


@pytest.mark.parametrize("rate", ["fast", "10", "10mbit/s", "mbit"])
def test_a_rate_has_a_number_and_a_unit(rate):
    with pytest.raises(ValueError, match="rate must be a whole number of kbit"):
        bits_per_second(rate)


def test_a_switch_has_room_for_four():
    with (
        pytest.raises(ValueError, match="num_hosts must be 2 to 4, got 5"),
        hosts(5, "1gbit"),
    ):
        pass
