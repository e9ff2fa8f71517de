"""Rendezvous: before JAX starts, all processes connect to process 0.

JAX itself only waits, and does not say who is missing. The processes meet on the port
of the coordinator, which JAX takes over afterwards; their connections stay open for a
`Channel`.

Anybody can connect to a port. A process therefore sends a token first, and process 0
ignores whoever has none: that neither delays nor ends the start. The token is a hash of
the coordinator's address and of the environment variable OLSGD_SECRET, if all processes
have one. It keeps out strangers, not somebody who can read the network.
"""

import contextlib
import hmac
import os
import selectors
import socket
import time
from collections.abc import Iterator
from typing import NamedTuple

from olsgd_jax.training.cluster.listeners import listen

ALL_HERE = "all are here"
SECRET = "OLSGD_SECRET"
"""Variable that all processes may share so that nobody else can guess their token."""
LONGEST_LINE = 1024  # bytes
PATIENCE = 5.0  # seconds that a connection has to say who it is
SAME_RUN = f"all processes must be given the same coordinator and the same {SECRET}"


class Tokens(NamedTuple):
    """Words that only the processes of one run know."""

    of_process: str  # opens what a process sends to process 0
    of_coordinator: str  # opens what process 0 answers


def connect_processes(
    coordinator: str, num_processes: int, process_id: int, timeout: float
) -> list[socket.socket]:
    """Returns when all processes are connected.

    Args:
      coordinator: host and port of process 0.
      num_processes: number of processes.
      process_id: which of them this is.
      timeout: seconds to wait for the others.

    Returns:
      In process 0, connections to processes 1, 2 and so on; in all others, the
      connection to process 0.

    Raises:
      ConnectionError: if some did not come, two have the same number, or do not agree
        how many they are; in all processes that came.

    >>> connect_processes("127.0.0.1:0", num_processes=1, process_id=0, timeout=1)
    []
    """
    host, _, port = coordinator.rpartition(":")
    address, tokens = (host.strip("[]"), int(port)), make_tokens(coordinator)
    if process_id == 0:
        connections = _gather(address, tokens, num_processes, timeout)
    else:
        who = f"{process_id} {num_processes}"
        connections = [_report_to(address, tokens, who, timeout)]
    for connection in connections:
        connection.settimeout(PATIENCE)
        # It may be silent for days, which some networks take for its end.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if hasattr(socket, "TCP_KEEPIDLE"):  # not on macOS
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)
    return connections


def make_tokens(coordinator: str) -> Tokens:
    """Makes the tokens of a run from what all of its processes know."""
    key = os.environ.get(SECRET, "").encode()
    return Tokens(
        *(
            hmac.new(key, f"{role} {coordinator}".encode(), "sha256").hexdigest()
            for role in Tokens._fields
        )
    )


def _gather(
    address: tuple[str, int], tokens: Tokens, num_processes: int, timeout: float
) -> list[socket.socket]:
    """Collects the other processes, and gives all of them the same answer."""
    with contextlib.ExitStack() as stack:
        listeners = [stack.enter_context(x) for x in listen(*address, num_processes)]
        arrivals = Arrivals(listeners, tokens)
        stack.callback(arrivals.close)
        answer = arrivals.wait_for(num_processes, timeout)
        for connection in (*arrivals.here.values(), *arrivals.unfit):
            connection.settimeout(PATIENCE)
            with contextlib.suppress(OSError):  # JAX will see that it has gone
                connection.sendall(f"{tokens.of_coordinator} {answer}\n".encode())
        if answer != ALL_HERE:
            raise ConnectionError(answer)
        return arrivals.take()


class Arrivals:
    """Whoever connects to process 0, all at the same time."""

    def __init__(self, listeners: list[socket.socket], tokens: Tokens) -> None:
        """Starts with nobody."""
        self.here: dict[int, socket.socket] = {}  # processes, by their number
        self.unfit: list[socket.socket] = []  # whose numbers do not fit
        self._tokens = tokens
        self._has_refused = False
        # What came so far on a connection, and when the rest is due.
        self._unknown: dict[socket.socket, tuple[bytes, float]] = {}
        self._selector = selectors.DefaultSelector()
        self._listeners = listeners
        for listener in listeners:
            listener.setblocking(False)
            self._selector.register(listener, selectors.EVENT_READ, listener)

    def wait_for(self, num_processes: int, timeout: float) -> str:
        """Waits until all others are here; gives the answer to them."""
        deadline = time.monotonic() + timeout
        while len(self.here) < num_processes - 1:
            if time.monotonic() >= deadline:
                return self._name_missing(num_processes, timeout)
            for number, count, connection in self._look(deadline):
                is_new = 0 < number < count and number not in self.here
                if count == num_processes and is_new:
                    self.here[number] = connection
                else:
                    self.unfit.append(connection)
                    return (
                        "processes must have different numbers below num_processes, "
                        f"got another {number} of {count} beside 0 of {num_processes}"
                    )
        return ALL_HERE

    def take(self) -> list[socket.socket]:
        """Hands over the connections to processes 1, 2 and so on."""
        taken = [connection for _, connection in sorted(self.here.items())]
        for connection in taken:
            self._selector.unregister(connection)
        return taken

    def close(self) -> None:
        """Closes all connections that were not taken."""
        for key in list(self._selector.get_map().values()):
            if key.data not in self._listeners:
                self._drop(key.data)
        self._selector.close()

    def _look(self, deadline: float) -> Iterator[tuple[int, int, socket.socket]]:
        """Gives numbers, counts and connections of those who have said who they are."""
        wait = min(deadline - time.monotonic(), PATIENCE / 10)
        for key, _ in self._selector.select(max(wait, 0)):
            if key.data in self._listeners:
                self._accept(key.data)
            elif (who := self._read(key.data)) is not None:
                yield *who, key.data
        now = time.monotonic()
        for connection, (_, due) in list(self._unknown.items()):
            if now > due:
                self._drop(connection)

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):  # it has gone again
            connection, _ = listener.accept()
            connection.setblocking(False)
            self._selector.register(connection, selectors.EVENT_READ, connection)
            self._unknown[connection] = b"", time.monotonic() + PATIENCE

    def _read(self, connection: socket.socket) -> tuple[int, int] | None:
        """Reads on; gives number and count once a whole line with a token is there."""
        try:
            part = connection.recv(LONGEST_LINE)
        except OSError:
            part = b""
        before, due = self._unknown.get(connection, (b"", 0.0))
        line, newline, rest = (before + part).partition(b"\n")
        # A process says one line and then waits: if there is more, it has gone.
        if not part or rest or not due or len(line) > LONGEST_LINE:
            return self._drop(connection)
        if not newline:
            self._unknown[connection] = line, due
            return None
        token, _, who = line.partition(b" ")
        numbers = who.split(b" ")
        is_ours = hmac.compare_digest(token, self._tokens.of_process.encode())
        if not is_ours or len(numbers) != 2 or not all(x.isdigit() for x in numbers):
            self._has_refused |= len(token) == len(self._tokens.of_process)
            return self._drop(connection)
        del self._unknown[connection]
        return int(numbers[0]), int(numbers[1])

    def _drop(self, connection: socket.socket) -> None:
        self._unknown.pop(connection, None)
        self.here = {i: x for i, x in self.here.items() if x is not connection}
        self._selector.unregister(connection)
        connection.close()

    def _name_missing(self, num_processes: int, timeout: float) -> str:
        missing = sorted(set(range(1, num_processes)) - self.here.keys())
        hint = f"; some came with another token: {SAME_RUN}" * self._has_refused
        return (
            f"{len(self.here) + 1} of {num_processes} processes came within "
            f"{timeout} s; missing: {', '.join(map(str, missing))}{hint}"
        )


def _report_to(
    address: tuple[str, int], tokens: Tokens, who: str, timeout: float
) -> socket.socket:
    """Reports to process 0, and hears what it says."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            connection = socket.create_connection(address, timeout)
            try:
                connection.sendall(f"{tokens.of_process} {who}\n".encode())
                # Its clock may have started later.
                token, _, answer = _read_line(connection, timeout + 5).partition(" ")
                if not hmac.compare_digest(
                    token.encode(), tokens.of_coordinator.encode()
                ):
                    raise OSError(f"nothing that process 0 would; {SAME_RUN}")
            except OSError:
                connection.close()
                raise
            break
        except OSError as error:
            if time.monotonic() >= deadline:
                raise ConnectionError(
                    f"process 0 of {who.split()[1]} did not come within {timeout} s: "
                    f"{address[0]}:{address[1]} says {error}"
                ) from error
        time.sleep(0.1)
    if answer != ALL_HERE:
        connection.close()
        raise ConnectionError(answer)
    return connection


def _read_line(connection: socket.socket, timeout: float) -> str:
    """Reads a line and nothing after it; what is too long is cut, as at an end."""
    deadline, line = time.monotonic() + timeout, b""
    while not line.endswith(b"\n") and len(line) < LONGEST_LINE:
        connection.settimeout(max(deadline - time.monotonic(), 0.001))
        part = connection.recv(1)
        if not part:
            break
        line += part
    return line.decode(errors="replace").rstrip("\n")
