"""Hosts on one machine, in network namespaces, with links of a given rate.

The hosts are connected to one switch, a bridge in a namespace of its own. A host's
outgoing traffic is shaped at its end of the link, incoming traffic at the switch's end.
Needs root and iproute2. Everything is removed afterwards, also after a failure or a
signal to stop.
"""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator

NAMES = tuple(f"olsgd-{os.getpid()}-{i}" for i in range(4))
SWITCH = f"olsgd-{os.getpid()}-switch"
"""Names unique to this process, so that others can make hosts at the same time."""

INTERFACE = "veth0"
"""Name of every host's end of its link."""

UNSHAPED = "unshaped"
"""The rate of links that are as fast as the machine can copy."""

_UNITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}


def why_not() -> str | None:
    """Tells why hosts cannot be made here; None if they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [tool for tool in ("ip", "tc") if shutil.which(tool) is None]
    if missing:
        return f"iproute2 is not installed ({', '.join(missing)})"
    # Root in a container may still not be allowed to.
    trial = f"{SWITCH}-trial"
    try:
        _make_switch(trial)
    except subprocess.CalledProcessError as error:
        return f"network namespaces cannot be made here: {error.stderr.strip()}"
    finally:
        _remove(trial)
    return None


def bits_per_second(rate: str) -> float:
    """Parses a rate.

    >>> bits_per_second("200mbit")
    200000000.0
    """
    parts = re.fullmatch(r"([1-9][0-9]{0,8})([kmg]bit)", rate)
    if parts is None:
        raise ValueError(
            "rate must be a whole number of kbit, mbit or gbit, at least 1, got "
            f"{rate!r}"
        )
    return float(parts[1]) * _UNITS[parts[2]]


def address(i: int) -> str:
    """Returns the address of host i."""
    return f"10.99.0.{i + 1}"


def shape(bits: float) -> tuple[str, ...]:
    """Returns the arguments of tc that give a link its rate, in bits per second."""
    # A burst is what the link carries in 4 ms, but at least one of the kernel's largest
    # packets, 64 kB and headers: with less, the shaper would split packets.
    burst = max(80_000, round(0.004 * bits / 8))
    return "tbf", "rate", f"{bits:.0f}bit", "burst", f"{burst}", "latency", "100ms"


@contextlib.contextmanager
def hosts(num_hosts: int, rate: str) -> Iterator[None]:
    """Makes hosts whose links have `rate` each way, such as "200mbit", or `UNSHAPED`.

    They are the first `num_hosts` of `NAMES`.
    """
    if not 2 <= num_hosts <= len(NAMES):
        raise ValueError(f"num_hosts must be 2 to {len(NAMES)}, got {num_hosts}")
    bits = None if rate == UNSHAPED else bits_per_second(rate)
    if reason := why_not():
        raise RuntimeError(f"hosts must be possible on this machine: {reason}")
    with on_signals(stop):
        try:
            _make_switch(SWITCH)
            for i in range(num_hosts):
                _make_host(i, bits)
            yield
        finally:
            with on_signals(signal.SIG_IGN):
                for name in (*NAMES, SWITCH):
                    _remove(name)


def _make_switch(name: str) -> None:
    _run("ip", "netns", "add", name)
    _run("ip", "-n", name, "link", "add", "switch", "type", "bridge")
    _run("ip", "-n", name, "link", "set", "switch", "up")


def _make_host(i: int, bits: float | None) -> None:
    host, port = NAMES[i], f"port{i}"
    _run("ip", "netns", "add", host)
    # gloo binds to the address that the host name resolves to.
    file = _hosts_file(host)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"127.0.0.1 localhost\n{address(i)} {socket.gethostname()}\n")
    peer = ("type", "veth", "peer", "name", port, "netns", SWITCH)
    _run("ip", "link", "add", INTERFACE, "netns", host, *peer)
    _run("ip", "-n", SWITCH, "link", "set", port, "master", "switch")
    _run("ip", "-n", host, "addr", "add", f"{address(i)}/24", "dev", INTERFACE)
    for name, interface in ((host, INTERFACE), (SWITCH, port)):
        _run("ip", "-n", name, "link", "set", interface, "up")
        if bits is not None:
            queue = "dev", interface, "root", *shape(bits)
            _run("tc", "-n", name, "qdisc", "add", *queue)
    _run("ip", "-n", host, "link", "set", "lo", "up")


def _remove(name: str) -> None:
    # Interfaces in a namespace are deleted with it.
    subprocess.run(["ip", "netns", "del", name], capture_output=True)
    shutil.rmtree(_hosts_file(name).parent, ignore_errors=True)


def _hosts_file(host: str) -> pathlib.Path:
    return pathlib.Path("/etc/netns") / host / "hosts"


@contextlib.contextmanager
def on_signals(do) -> Iterator[None]:
    """Replaces the handlers of the signals that ask a process to stop."""
    numbers = (signal.SIGTERM, signal.SIGINT)
    usual = [signal.signal(number, do) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, usual, strict=True):
            signal.signal(number, handler)


def stop(number: int, frame: object) -> None:
    """Turns a signal into an exception, so that the hosts are removed."""
    del frame
    raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
