"""Process 0 finds out who is there, all others hear it, and strangers do not matter."""

import contextlib
import socket
import threading
import time

import pytest

from experiments.launch import free_coordinator
from olsgd_jax.training.cluster import rendezvous
from olsgd_jax.training.cluster.rendezvous import (
    ALL_HERE,
    SECRET,
    connect_processes,
    make_tokens,
)


@pytest.fixture(autouse=True)
def no_secret(monkeypatch):
    monkeypatch.delenv(SECRET, raising=False)


class Started(threading.Thread):
    """A process of a rendezvous: a thread, and what became of it."""

    def __init__(self, coordinator, num_processes, process_id, timeout=10):
        super().__init__(daemon=True)
        self.args = coordinator, num_processes, process_id, timeout
        self.said, self.seconds = "", 0.0
        self.start()

    def run(self):
        begun = time.monotonic()
        try:
            for connection in connect_processes(*self.args):
                connection.close()
            self.said = ALL_HERE
        except ConnectionError as error:
            self.said = str(error)
        self.seconds = time.monotonic() - begun

    def end(self):
        self.join(timeout=60)
        assert not self.is_alive()
        return self.said


def connect(coordinator, host=None):
    """Connects as soon as process 0 listens."""
    own_host, port = coordinator.split(":")
    for _ in range(100):
        with contextlib.suppress(OSError):
            return socket.create_connection((host or own_host, int(port)), timeout=10)
        time.sleep(0.05)
    raise AssertionError(f"nobody listens at {coordinator}")


def greeting(coordinator, process_id, num_processes):
    token = make_tokens(coordinator).of_process
    return f"{token} {process_id} {num_processes}\n".encode()


@pytest.mark.parametrize(
    ("others", "message"),
    [
        ([(1, 3)], "2 of 3 processes joined within 1 s; missing: 2"),
        ([(1, 3), (1, 3)], "process 0 of 3 cannot accept process 1 of 3"),
        ([(1, 2)], "process 0 of 3 cannot accept process 1 of 2"),
    ],
)
def test_what_is_wrong_is_said_by_all_who_came(others, message):
    coordinator = free_coordinator()
    processes = [
        Started(coordinator, count, number, timeout=1)
        for number, count in [(0, 3), *others]
    ]
    said = [process.end() for process in processes]
    # Who comes after that has been said finds nobody.
    assert len([x for x in said if message in x]) >= 2, said


def test_without_process_0_the_others_say_so():
    with pytest.raises(
        ConnectionError, match=r"process 0 of 2 did not answer within 1 s"
    ):
        connect_processes(free_coordinator(), 2, 1, timeout=1)


@pytest.mark.parametrize(
    "words",
    [
        b"7 of 9",
        b"1 of 2",
        b"7 of 9\n",
        b"1 of 2\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff\n",
        b"0" * 64 + b" 1 3\n",
        b"x" * 100_000,
        b"",
    ],
    ids=lambda words: words[:16],
)
def test_strangers_neither_end_nor_delay_the_start(words):
    coordinator = free_coordinator()
    first = Started(coordinator, 3, 0)
    with contextlib.ExitStack() as stack:
        for _ in range(8):  # of which each would cost a second, one after the other
            stranger = stack.enter_context(connect(coordinator))
            with contextlib.suppress(OSError):  # it may be sent away before its end
                stranger.sendall(words)
        others = [Started(coordinator, 3, number) for number in (1, 2)]
        said = [process.end() for process in (first, *others)]
    assert said == [ALL_HERE] * 3
    assert max(process.seconds for process in (first, *others)) < 5


def test_a_report_may_come_in_parts():
    coordinator = free_coordinator()
    first = Started(coordinator, 2, 0)
    with connect(coordinator) as other:
        words = greeting(coordinator, 1, 2)
        for part in (words[:7], words[7:-2], words[-2:]):
            other.sendall(part)
            time.sleep(0.2)
        answer = other.makefile().readline()
    assert answer == f"{make_tokens(coordinator).of_coordinator} {ALL_HERE}\n"
    assert first.end() == ALL_HERE


def test_process_0_listens_at_its_own_address_alone():
    coordinator = free_coordinator()
    first = Started(coordinator, 2, 0)
    connect(coordinator).close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", int(coordinator.split(":")[1])))
    assert Started(coordinator, 2, 1).end() == first.end() == ALL_HERE


@pytest.mark.parametrize(
    "host",
    [
        pytest.param("192.0.2.1", id="of a router"),
        pytest.param("node0", id="a name that is a loopback address here"),
    ],
)
def test_process_0_listens_everywhere_where_its_address_is_not_of_this_host(
    host, monkeypatch
):
    resolve = socket.getaddrinfo
    as_debian = {"node0": "127.0.1.1"}
    monkeypatch.setattr(
        socket,
        "getaddrinfo",
        lambda x, *rest, **kw: resolve(as_debian.get(x, x), *rest, **kw),
    )
    coordinator = f"{host}:{free_coordinator().split(':')[1]}"
    first = Started(coordinator, 2, 0)
    with connect(coordinator, "127.0.0.1") as other:
        other.sendall(greeting(coordinator, 1, 2))
        assert ALL_HERE in other.makefile().readline()
    assert first.end() == ALL_HERE


def test_one_that_leaves_before_all_are_here_is_missing():
    coordinator = free_coordinator()
    first = Started(coordinator, 3, 0, timeout=2)
    with connect(coordinator) as other:
        other.sendall(greeting(coordinator, 1, 3))
    assert "1 of 3 processes joined within 2 s; missing: 1, 2" in first.end()


def test_one_that_comes_again_is_the_same_process():
    coordinator = free_coordinator()
    first = Started(coordinator, 2 + 1, 0)
    with connect(coordinator) as other:
        other.sendall(greeting(coordinator, 1, 3))
    time.sleep(0.2)
    others = [Started(coordinator, 3, number) for number in (1, 2)]
    assert [x.end() for x in (first, *others)] == [ALL_HERE] * 3


def test_a_process_with_another_secret_is_missing_and_that_is_said(monkeypatch):
    coordinator = free_coordinator()
    monkeypatch.setenv(SECRET, "ours")
    first = Started(coordinator, 2, 0, timeout=1)
    connect(coordinator).close()
    monkeypatch.setenv(SECRET, "theirs")
    other = Started(coordinator, 2, 1, timeout=1)
    hint = "must be given the same coordinator and the same OLSGD_SECRET"
    assert f"missing: 1; some sent a wrong token: all processes {hint}" in (first.end())
    assert "process 0 of 2 did not answer within 1 s" in other.end()


@pytest.mark.parametrize("word", [b"x", b"HTTP/1.1 400 Bad Request\r\n"])
def test_a_false_process_0_cannot_keep_the_others(word):
    coordinator = free_coordinator()
    sent = []

    def stream(listener):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection, contextlib.suppress(OSError):
                    while True:
                        sent.append(connection.send(word * 1000))

    with socket.create_server(("127.0.0.1", int(coordinator.split(":")[1]))) as server:
        threading.Thread(target=stream, args=[server], daemon=True).start()
        said = Started(coordinator, 2, 1, timeout=1)
        assert "the answer is not from process 0; all processes must" in said.end()
        server.shutdown(socket.SHUT_RDWR)
    assert said.seconds < 5


def test_a_silent_connection_is_closed_in_time(monkeypatch):
    monkeypatch.setattr(rendezvous, "PATIENCE", 0.3)
    coordinator = free_coordinator()
    first = Started(coordinator, 2, 0, timeout=2)
    with connect(coordinator) as stranger:
        assert stranger.recv(1) == b""
    assert first.is_alive()
    assert "missing: 1" in first.end()


def test_a_stream_without_an_end_is_cut_off(monkeypatch):
    monkeypatch.setattr(rendezvous, "PATIENCE", 60.0)
    coordinator = free_coordinator()
    first = Started(coordinator, 2, 0, timeout=3)
    with connect(coordinator) as stranger:
        stranger.settimeout(2)  # far below the patience with those who are silent
        stranger.sendall(b"x" * 2 * rendezvous.LONGEST_LINE)
        with contextlib.suppress(ConnectionResetError):  # what it sent was not read
            assert stranger.recv(1) == b""
    assert "missing: 1" in first.end()
