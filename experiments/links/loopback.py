"""A slow link that needs no root: a private loopback with a given rate.

A network namespace has its own loopback, and whoever made the namespace may shape it.
Processes that enter it talk over that loopback; both directions share one rate. Needs
Linux, util-linux, iproute2, and either root or permission to make user namespaces. The
namespace ends with the process that made it, however that ends.
"""

import contextlib
import os
import pathlib
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator

from experiments.links.hosts import bits_per_second, shape

TOOLS = {
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "ip": "iproute2",
    "tc": "iproute2",
}
"""Required programs, each with the package that usually provides it."""

_READY = "ready"
_AS_USER = ("--user", "--map-root-user")
_NAMESPACES = ("--net", "--uts")
_SWITCHES = {
    "kernel/unprivileged_userns_clone": "1",
    "kernel/apparmor_restrict_unprivileged_userns": "0",
}
"""Kernel settings that must have these values for users to make namespaces."""


class NoLinkError(RuntimeError):
    """A slow link is not possible here; says why, and what would change that."""


def why_not() -> str | None:
    """Tells why a slow link is not possible here, and what would change that."""
    try:
        with shaped_loopback("200mbit"):
            return None
    except NoLinkError as error:
        return str(error)


@contextlib.contextmanager
def shaped_loopback(rate: str) -> Iterator[list[str]]:
    """Makes a loopback of `rate`, such as "200mbit", that both directions share.

    Yields:
      The words that put a command inside, to be written before it. There, the host's
      name is "localhost", as gloo listens at the address of that name.

    Raises:
      NoLinkError: if that is not possible here.
    """
    bits = bits_per_second(rate)
    if sys.platform != "linux":
        raise NoLinkError(
            f"network namespaces need Linux, and this is {sys.platform}; run it on "
            "Linux or in a Linux virtual machine"
        )
    if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
        packages = " ".join(sorted({TOOLS[tool] for tool in missing}))
        raise NoLinkError(
            f"these programs are not on the PATH: {', '.join(missing)}; install "
            f"{packages} (Debian, Ubuntu: apt-get install {packages})"
        )
    holder, as_user = _first_allowed()
    with holder:
        try:
            _tell(holder, f"{bits:.0f}")
            namespaces = ["--user", *_NAMESPACES] if as_user else [*_NAMESPACES]
            keep = ["--preserve-credentials"] if as_user else []
            yield ["nsenter", f"--target={holder.pid}", *namespaces, *keep]
        finally:
            holder.kill()


def _first_allowed() -> tuple[subprocess.Popen, bool]:
    """Starts the process that holds the namespace; tells whether without root."""
    refusals = []
    # Root may be refused a user namespace, and root without capabilities the others.
    for as_user in (True, False) if os.geteuid() == 0 else (True,):
        words = [*(_AS_USER if as_user else ()), *_NAMESPACES]
        holder = subprocess.Popen(
            ["unshare", *words, sys.executable, "-m", "experiments.links.loopback"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert holder.stdout is not None
        if holder.stdout.readline().strip() == _READY:
            return holder, as_user
        with holder:
            refusals.append(_last_words(holder))
    raise NoLinkError(
        f"this system does not allow network namespaces ({'; '.join(refusals)}); "
        f"{_how_to_allow()}"
    )


def _how_to_allow() -> str:
    """Tells what an administrator would have to change, given the current settings."""
    wrong = [
        f"{name.replace('/', '.')}={value}"
        for name, value in _SWITCHES.items()
        if _setting(name) not in (None, value)
    ]
    if _setting("user/max_user_namespaces") == "0":
        wrong.append("user.max_user_namespaces=10000")
    if wrong:
        return f"to allow them: sudo sysctl -w {' '.join(wrong)}, or run it as root"
    return "run it as root, or in a container that may make them (docker: --privileged)"


def _setting(name: str) -> str | None:
    with contextlib.suppress(OSError):
        return (pathlib.Path("/proc/sys") / name).read_text().strip()
    return None


def _tell(holder: subprocess.Popen, bits: str) -> None:
    """Asks the holder to shape the loopback, and waits until it has."""
    assert holder.stdin is not None
    assert holder.stdout is not None
    print(bits, file=holder.stdin, flush=True)
    if holder.stdout.readline().strip() != _READY:
        raise NoLinkError(
            f"the loopback cannot be shaped ({_last_words(holder)}); the kernel may "
            "lack the token bucket filter: sudo modprobe sch_tbf"
        )


def _last_words(process: subprocess.Popen) -> str:
    assert process.stderr is not None
    lines = process.stderr.read().split("\n")
    said = [line.strip() for line in lines if line.strip()]
    return said[-1] if said else f"status {process.wait()}"


def _hold() -> None:
    """Shapes this namespace's loopback as asked; ends with the process that asked."""
    print(_READY, flush=True)
    bits = float(sys.stdin.readline() or sys.exit())
    socket.sethostname("localhost")
    for command in (
        # The shaper would split a loopback's packets of 64 kB.
        ("ip", "link", "set", "lo", "mtu", "1500", "up"),
        ("tc", "qdisc", "add", "dev", "lo", "root", *shape(bits)),
    ):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            reason, *_ = done.stderr.strip().splitlines() or [f"{done.returncode}"]
            sys.exit(f"{command[0]}: {reason}")
    print(_READY, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    _hold()
