"""Two hosts on one machine, in network namespaces, with a link of a given rate.

Needs root and iproute2. The hosts have the addresses 10.99.0.1 and 10.99.0.2, and are
removed at the end, also after a failure.
"""

import contextlib
import os
import pathlib
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence

HOSTS = (f"olsgd1-{os.getpid()}", f"olsgd2-{os.getpid()}")
"""Names of this process alone, so that others can make hosts at the same time."""

COORDINATOR = "10.99.0.1:9911"


def why_not() -> str | None:
    """Says what is missing to make hosts; None if nothing is."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [tool for tool in ("ip", "tc") if shutil.which(tool) is None]
    if missing:
        return f"iproute2 is not installed ({', '.join(missing)})"
    # Root inside of a container may still not be allowed to.
    tried = subprocess.run(
        ["ip", "netns", "add", f"olsgd-try-{os.getpid()}"],
        capture_output=True,
        text=True,
    )
    if tried.returncode != 0:
        return f"network namespaces cannot be made here: {tried.stderr.strip()}"
    _run("ip", "netns", "del", f"olsgd-try-{os.getpid()}")
    return None


@contextlib.contextmanager
def two_hosts(rate: str) -> Iterator[None]:
    """Makes the hosts and their link, with `rate` each way, such as "200mbit"."""
    if reason := why_not():
        raise RuntimeError(f"two hosts must be possible on this machine: {reason}")
    try:
        for i, host in enumerate(HOSTS, start=1):
            _run("ip", "netns", "add", host)
            # gloo binds to the address that the host name resolves to.
            hosts = _hosts_file(host)
            hosts.parent.mkdir(parents=True, exist_ok=True)
            name = socket.gethostname()
            hosts.write_text(f"127.0.0.1 localhost\n10.99.0.{i} {name}\n")
        first, second = HOSTS
        peer = ("type", "veth", "peer", "name", "veth2", "netns", second)
        _run("ip", "link", "add", "veth1", "netns", first, *peer)
        for i, host in enumerate(HOSTS, start=1):
            _run("ip", "-n", host, "addr", "add", f"10.99.0.{i}/24", "dev", f"veth{i}")
            _run("ip", "-n", host, "link", "set", f"veth{i}", "up")
            _run("ip", "-n", host, "link", "set", "lo", "up")
            shape = ("tbf", "rate", rate, "burst", "256kb", "latency", "100ms")
            tc = ("tc", "qdisc", "replace", "dev", f"veth{i}", "root", *shape)
            _run("ip", "netns", "exec", host, *tc)
        yield
    finally:
        for host in HOSTS:
            subprocess.run(["ip", "netns", "del", host], capture_output=True)
            shutil.rmtree(_hosts_file(host).parent, ignore_errors=True)


def run_on_both(command: Sequence[str], timeout: float) -> str:
    """Runs a command on both hosts, with PROCESS and COORDINATOR in its environment.

    Returns:
      What the first of them printed.
    """
    processes = [
        subprocess.Popen(
            ["ip", "netns", "exec", host, *command],
            env={**os.environ, "PROCESS": str(i), "COORDINATOR": COORDINATOR},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for i, host in enumerate(HOSTS)
    ]
    try:
        results = [process.communicate(timeout=timeout) for process in processes]
    finally:
        for process in processes:
            process.kill()
    for process, (_, errors) in zip(processes, results, strict=True):
        if process.returncode != 0:
            raise RuntimeError(f"{' '.join(command)} failed on a host:\n{errors}")
    return results[0][0]


def _hosts_file(host: str) -> pathlib.Path:
    return pathlib.Path("/etc/netns") / host / "hosts"


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
