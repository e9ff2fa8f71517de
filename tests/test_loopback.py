"""A private loopback: how fast it is, what is left of it, and why there is none."""

import os
import pathlib
import shutil
import socket
import subprocess
import sys
import time

import pytest

from experiments.links.loopback import TOOLS, NoLinkError, shaped_loopback, why_not

ROOT = pathlib.Path(__file__).parents[1]
REASON = why_not()
needs_link = pytest.mark.skipif(REASON is not None, reason=str(REASON))
SEND = """
import socket, threading, time
listener = socket.create_server(("127.0.0.1", 0))
sender = socket.create_connection(listener.getsockname())
receiver, _ = listener.accept()
num = {num}
threading.Thread(target=sender.sendall, args=(bytes(num),)).start()
began = time.monotonic()
while num:
    num -= len(receiver.recv(2**16))
print(time.monotonic() - began, socket.gethostname())
"""


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, **options)
    assert not done.returncode, done.stderr
    return done.stdout


@needs_link
@pytest.mark.parametrize("rate", [50, 200])
def test_the_loopback_has_the_rate_that_was_asked_for(rate):
    num = 40_000 * rate  # bytes, which take 0.32 s
    with shaped_loopback(f"{rate}mbit") as enter:
        said = run(*enter, sys.executable, "-c", SEND.format(num=num))
    seconds, name = said.split()
    # Of 1,514 bytes of a frame 1,448 are what was sent; the first go at once.
    assert float(seconds) == pytest.approx(0.32 * 1514 / 1448, rel=0.15)
    assert name == "localhost"


@needs_link
def test_this_machine_keeps_its_own_loopback_and_name():
    name, before = socket.gethostname(), run("tc", "qdisc", "show", "dev", "lo")
    with shaped_loopback("50mbit") as enter:
        assert "tbf" in run(*enter, "tc", "qdisc", "show", "dev", "lo")
        assert run("tc", "qdisc", "show", "dev", "lo") == before
        assert socket.gethostname() == name


@needs_link
def test_the_loopback_is_gone_with_the_process_that_made_it():
    code = """
import time
from experiments.links.loopback import shaped_loopback
with shaped_loopback("50mbit") as enter:
    print(enter[1].removeprefix("--target="), flush=True)
    time.sleep(60)
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as maker:
        holder = pathlib.Path("/proc") / maker.stdout.readline().strip()
        assert holder.exists()
        maker.kill()
    end = time.monotonic() + 10
    while holder.exists() and "(zombie)" not in (holder / "status").read_text():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_programs_that_are_missing_are_named(tmp_path, monkeypatch):
    for tool in set(TOOLS) - {"tc"}:
        (tmp_path / tool).symlink_to(shutil.which(tool) or "/bin/true")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "platform", "linux")
    assert why_not() == (
        "these programs are not on the PATH: tc; install iproute2 (Debian, Ubuntu: "
        "apt-get install iproute2)"
    )


def test_other_systems_are_told_that_it_needs_linux(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    with (
        pytest.raises(NoLinkError, match="network namespaces need Linux, and this is"),
        shaped_loopback("50mbit"),
    ):
        pass


@needs_link
def test_a_system_that_forbids_namespaces_is_told_how_to_allow_them():
    # A namespace of its own, whose limits hold for it alone.
    limits = "/proc/sys/user/max_{}_namespaces"
    script = "".join(f"echo 0 > {limits.format(x)} && " for x in ("net", "user"))
    script += f"exec {sys.executable} -c "
    script += "'from experiments.links.loopback import why_not; print(why_not())'"
    said = run("unshare", "--user", "--map-root-user", "sh", "-c", script)
    assert said.startswith("this system does not allow network namespaces (unshare: ")
    assert "user.max_user_namespaces=10000" in said
    assert "or run it as root" in said


@needs_link
def test_a_shaper_that_refuses_is_quoted():
    with (
        pytest.raises(NoLinkError, match=r"the loopback cannot be shaped \(tc: .+\); "),
        shaped_loopback("99999gbit"),  # its burst is no number for tc
    ):
        pass


@needs_link
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_an_ordinary_user_has_it_too():
    code = "from experiments.links.loopback import why_not; print(why_not())"
    nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    # The Python of the tests may lie where only root can read, and so may they.
    python = "/usr/bin/python3"
    trial = subprocess.run(
        [*nobody, python, "experiments/processes/bound.py", "true"], cwd=ROOT
    )
    if trial.returncode:
        pytest.skip(f"nobody cannot run {python} in {ROOT}")
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": ""}
    assert run(*nobody, python, "-c", code, env=environment) == "None\n"
