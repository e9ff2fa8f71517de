"""Rendezvous: before JAX starts, all processes connect to process 0.

JAX waits for the processes too, but does not say which are missing. They meet on the
coordinator's port, which JAX takes over afterwards. Their connections stay open for a
`Channel`.

Anybody can connect to a port, so a process first sends a token. Process 0 ignores every
connection without it, which neither delays nor prevents the start. The token is a hash
of the coordinator's address and of the environment variable OLSGD_SECRET, if that is
set. It keeps strangers out, but not somebody who can read the network.
"""

import contextlib
import errno
import hmac
import ipaddress
import os
import selectors
import socket
import time
from collections.abc import Iterator
from typing import NamedTuple

ALL_HERE = "all are here"
SECRET = "OLSGD_SECRET"
"""Variable that all processes may share, so that nobody else can guess their token."""
LONGEST_LINE = 1024  # bytes
PATIENCE = 5.0  # seconds for a connection to identify itself
SAME_RUN = f"all processes must be given the same coordinator and the same {SECRET}"


class Tokens(NamedTuple):
    """Words that only the processes of one run know."""

    of_process: str  # starts the line that a process sends to process 0
    of_coordinator: str  # starts the answer of process 0


def connect_processes(
    coordinator: str, num_processes: int, process_id: int, timeout: float
) -> list[socket.socket]:
    """Connects all processes to process 0.

    Args:
      coordinator: host and port of process 0.
      num_processes: number of processes.
      process_id: number of this process.
      timeout: seconds to wait for the others.

    Returns:
      In process 0, connections to processes 1, 2 and so on; in all others, the
      connection to process 0.

    Raises:
      ConnectionError: in all processes that are connected, if some are missing, two
        have the same number, or they disagree about num_processes.
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
        # Some networks drop a connection that is silent for long.
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
    """Collects the other processes, and sends all of them the same answer."""
    listeners = _listen(*address, num_processes)
    with contextlib.closing(Arrivals(listeners, tokens)) as arrivals:
        answer = arrivals.wait_for(num_processes, timeout)
        for connection in (*arrivals.here.values(), *arrivals.unfit):
            connection.settimeout(PATIENCE)
            with contextlib.suppress(OSError):  # JAX will notice that it has ended
                connection.sendall(f"{tokens.of_coordinator} {answer}\n".encode())
        if answer != ALL_HERE:
            raise ConnectionError(answer)
        return arrivals.take()


def _listen(host: str, port: int, num_processes: int) -> list[socket.socket]:
    """Listens on those addresses of a host name that belong to this host.

    If none does, as with the address of a router or a service, it listens on all
    addresses.
    """
    backlog = num_processes + 128  # strangers queue there as well
    listeners: list[socket.socket] = []
    try:
        for family, address in _addresses_of(host):
            try:
                listener = socket.create_server(
                    (address, port), family=family, backlog=backlog
                )
            except OSError as error:
                if error.errno != errno.EADDRNOTAVAIL:
                    raise
            else:
                listeners.append(listener)
        if not listeners:
            both = socket.has_dualstack_ipv6()
            family = socket.AF_INET6 if both else socket.AF_INET
            listener = socket.create_server(
                ("", port), family=family, dualstack_ipv6=both, backlog=backlog
            )
            listeners.append(listener)
    except OSError as error:
        for listener in listeners:
            listener.close()
        raise ConnectionError(
            f"coordinator must have a free port, got {port}: "
            f"{os.strerror(error.errno or 0)}"
        ) from error
    return listeners


def _addresses_of(host: str) -> set[tuple[int, str]]:
    """Finds families and addresses at which other hosts can reach a host."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return set()
    addresses = {(int(family), str(address[0])) for family, *_, address in found}
    if host == "localhost" or any(host == address for _, address in addresses):
        return addresses
    # Debian's /etc/hosts maps a host's own name to a loopback address, at which other
    # hosts cannot reach it.
    return {x for x in addresses if not ipaddress.ip_address(x[1]).is_loopback}


class Arrivals:
    """All connections to process 0, read concurrently."""

    def __init__(self, listeners: list[socket.socket], tokens: Tokens) -> None:
        """Starts with the listeners alone."""
        self.here: dict[int, socket.socket] = {}  # processes by number
        self.unfit: list[socket.socket] = []  # processes whose numbers do not fit
        self._listeners, self._tokens = listeners, tokens
        self._has_refused = False  # somebody with a wrong token
        # What a connection has sent so far, and when the rest is due.
        self._unknown: dict[socket.socket, tuple[bytes, float]] = {}
        self._selector = selectors.DefaultSelector()
        for listener in listeners:
            self._watch(listener)

    def wait_for(self, num_processes: int, timeout: float) -> str:
        """Waits until all others are here; returns the answer for them."""
        deadline = time.monotonic() + timeout
        while len(self.here) < num_processes - 1:
            if time.monotonic() >= deadline:
                return self._name_missing(num_processes, timeout)
            for number, count, connection in self._look(deadline):
                is_new = 0 < number < count and number not in self.here
                if count != num_processes or not is_new:
                    self.unfit.append(connection)
                    return (
                        f"process 0 of {num_processes} cannot accept process {number} "
                        f"of {count}; all processes must be given different numbers "
                        "and the same num_processes"
                    )
                self.here[number] = connection
        return ALL_HERE

    def take(self) -> list[socket.socket]:
        """Hands over the connections to processes 1, 2 and so on."""
        taken = [connection for _, connection in sorted(self.here.items())]
        for connection in taken:
            self._selector.unregister(connection)
        return taken

    def close(self) -> None:
        """Closes the listeners, and all connections that were not taken."""
        for key in list(self._selector.get_map().values()):
            key.data.close()
        self._selector.close()

    def _watch(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._selector.register(connection, selectors.EVENT_READ, connection)

    def _look(self, deadline: float) -> Iterator[tuple[int, int, socket.socket]]:
        """Yields number, count and connection of processes as they identify."""
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
        with contextlib.suppress(OSError):  # the other side has closed it already
            connection, _ = listener.accept()
            self._watch(connection)
            self._unknown[connection] = b"", time.monotonic() + PATIENCE

    def _read(self, connection: socket.socket) -> tuple[int, int] | None:
        """Reads on; returns number and count after a whole line with the token."""
        try:
            part = connection.recv(LONGEST_LINE)
        except OSError:
            part = b""
        before, due = self._unknown.get(connection, (b"", 0.0))
        line, newline, rest = (before + part).partition(b"\n")
        # A process sends one line and then waits; more means that it is no process.
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
        hint = f"; some sent a wrong token: {SAME_RUN}" * self._has_refused
        return (
            f"{len(self.here) + 1} of {num_processes} processes joined within "
            f"{timeout} s; missing: {', '.join(map(str, missing))}{hint}"
        )


def _report_to(
    address: tuple[str, int], tokens: Tokens, who: str, timeout: float
) -> socket.socket:
    """Reports to process 0, and waits for its answer."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            with contextlib.ExitStack() as stack:
                connection = socket.create_connection(address, timeout)
                stack.enter_context(connection)
                connection.sendall(f"{tokens.of_process} {who}\n".encode())
                # The clock of process 0 may have started later.
                token, _, answer = _read_line(connection, timeout + 5).partition(b" ")
                if not hmac.compare_digest(token, tokens.of_coordinator.encode()):
                    raise OSError(f"the answer is not from process 0; {SAME_RUN}")
                stack.pop_all()  # keeps the connection open
                break
        except OSError as error:
            if time.monotonic() >= deadline:
                raise ConnectionError(
                    f"process 0 of {who.split()[1]} did not answer within {timeout} s "
                    f"at {address[0]}:{address[1]}: {error}"
                ) from error
        time.sleep(0.1)
    if answer.decode() != ALL_HERE:
        connection.close()
        raise ConnectionError(answer.decode())
    return connection


def _read_line(connection: socket.socket, timeout: float) -> bytes:
    """Reads a line and nothing after it; it is cut off if it is too long."""
    deadline, line = time.monotonic() + timeout, b""
    while not line.endswith(b"\n") and len(line) < LONGEST_LINE:
        connection.settimeout(max(deadline - time.monotonic(), 0.001))
        part = connection.recv(1)
        if not part:
            break
        line += part
    return line.rstrip(b"\n")
