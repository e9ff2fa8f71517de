"""Hosts on one machine, in network namespaces, with links of a given rate.

The hosts hang on one switch, a bridge in a namespace of its own. What a host sends is
shaped at its end of its link, what it receives at the switch's end. Needs root and
iproute2. Nothing is left afterwards, also after a failure or a signal to stop.
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
"""Names of this process alone, so that others can make hosts at the same time."""

INTERFACE = "veth0"
"""What every host calls its end of its link."""

_UNITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}


def why_not() -> str | None:
    """Says what is missing to make hosts; None if nothing is."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [tool for tool in ("ip", "tc") if shutil.which(tool) is None]
    if missing:
        return f"iproute2 is not installed ({', '.join(missing)})"
    # Root inside of a container may still not be allowed to.
    trial = f"{SWITCH}-trial"
    try:
        _make_switch(trial)
    except subprocess.CalledProcessError as error:
        return f"network namespaces cannot be made here: {error.stderr.strip()}"
    finally:
        _remove(trial)
    return None


def bits_per_second(rate: str) -> float:
    """Reads a rate.

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
    """Gives the address of host i."""
    return f"10.99.0.{i + 1}"


def shape(bits: float) -> tuple[str, ...]:
    """Says to tc how a link gets its rate, in bits per second."""
    # At once goes what takes 4 ms, or one of the kernel's largest packets, 64 kB and
    # headers, where that is more: smaller, and the shaper would cut packets up.
    burst = max(80_000, round(0.004 * bits / 8))
    return "tbf", "rate", f"{bits:.0f}bit", "burst", f"{burst}", "latency", "100ms"


@contextlib.contextmanager
def hosts(num_hosts: int, rate: str) -> Iterator[None]:
    """Makes hosts whose links have `rate` each way, such as "200mbit".

    They are the first `num_hosts` of `NAMES`.
    """
    if not 2 <= num_hosts <= len(NAMES):
        raise ValueError(f"num_hosts must be 2 to {len(NAMES)}, got {num_hosts}")
    bits = bits_per_second(rate)
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


def _make_host(i: int, bits: float) -> None:
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
        _run("tc", "-n", name, "qdisc", "add", "dev", interface, "root", *shape(bits))
    _run("ip", "-n", host, "link", "set", "lo", "up")


def _remove(name: str) -> None:
    # What hangs on a namespace goes with it.
    subprocess.run(["ip", "netns", "del", name], capture_output=True)
    shutil.rmtree(_hosts_file(name).parent, ignore_errors=True)


def _hosts_file(host: str) -> pathlib.Path:
    return pathlib.Path("/etc/netns") / host / "hosts"


@contextlib.contextmanager
def on_signals(do) -> Iterator[None]:
    """Does something else than usual on the signals that ask a process to stop."""
    numbers = (signal.SIGTERM, signal.SIGINT)
    usual = [signal.signal(number, do) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, usual, strict=True):
            signal.signal(number, handler)


def stop(number: int, frame: object) -> None:
    """Lets a signal pass through the code that removes the hosts."""
    del frame
    raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
