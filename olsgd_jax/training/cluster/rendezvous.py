"""Roll call: before JAX starts, process 0 finds out who is there, and tells all.

JAX itself only waits, and does not say who is missing. The call is held on the
port of the coordinator, which JAX takes over afterwards.
"""

import contextlib
import os
import socket
import time

ALL_HERE = "all are here"


def call_roll(
    coordinator: str, num_processes: int, process_id: int, timeout: float
) -> None:
    """Returns when all processes are there.

    Args:
      coordinator: host and port of process 0.
      num_processes: how many there should be.
      process_id: which of them this is.
      timeout: seconds to wait for the others.

    Raises:
      ConnectionError: if some did not come, two have the same number, or do not agree
        how many they are; in all processes that came.

    >>> call_roll("127.0.0.1:0", num_processes=1, process_id=0, timeout=1)
    """
    host, _, port = coordinator.rpartition(":")
    address = host.strip("[]"), int(port)
    if process_id == 0:
        answer = _call(address[1], num_processes, timeout)
    else:
        answer = _answer_to(address, num_processes, process_id, timeout)
    if answer != ALL_HERE:
        raise ConnectionError(answer)


def _call(port: int, num_processes: int, timeout: float) -> str:
    """Collects the other processes, and gives all of them the same answer."""
    deadline, here = time.monotonic() + timeout, {}
    with contextlib.ExitStack() as stack, _listener(port, num_processes) as listener:
        answer = ALL_HERE
        while len(here) < num_processes - 1 and answer == ALL_HERE:
            listener.settimeout(max(deadline - time.monotonic(), 0.001))
            try:
                connection = stack.enter_context(listener.accept()[0])
                connection.settimeout(1)
                who, _, of = connection.recv(64).decode().partition(" of ")
                number, count = int(who), int(of)
            except (OSError, ValueError):  # nobody came, or somebody who is not ours
                if time.monotonic() >= deadline:
                    missing = sorted(set(range(1, num_processes)) - here.keys())
                    answer = (
                        f"{len(here) + 1} of {num_processes} processes came within "
                        f"{timeout} s; missing: {', '.join(map(str, missing))}"
                    )
                continue
            if count != num_processes or not 0 < number < count or number in here:
                answer = (
                    f"processes must have different numbers below num_processes, got "
                    f"another {who} of {of} beside 0 of {num_processes}"
                )
            here[number] = connection
        for connection in here.values():
            with contextlib.suppress(OSError):  # JAX will see that it has gone
                connection.sendall(answer.encode())
    return answer


def _listener(port: int, num_processes: int) -> socket.socket:
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    try:
        return socket.create_server(
            ("", port), family=family, dualstack_ipv6=both, backlog=num_processes
        )
    except OSError as error:
        raise ConnectionError(
            f"coordinator must have a free port, got {port}: "
            f"{os.strerror(error.errno or 0)}"
        ) from error


def _answer_to(
    address: tuple[str, int], num_processes: int, process_id: int, timeout: float
) -> str:
    """Reports to process 0, and hears what it says."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            connection = socket.create_connection(address, timeout)
            break
        except OSError as error:
            if time.monotonic() >= deadline:
                return (
                    f"process 0 of {num_processes} did not come within {timeout} s: "
                    f"{address[0]}:{address[1]} says {error}"
                )
        time.sleep(0.1)
    with connection, contextlib.suppress(OSError):
        connection.sendall(f"{process_id} of {num_processes}".encode())
        connection.settimeout(timeout + 5)  # its clock may have started later
        answer = b"".join(iter(lambda: connection.recv(1024), b""))
        if answer:
            return answer.decode(errors="replace")
    return f"process 0 of {num_processes} came, but left before all were here"
