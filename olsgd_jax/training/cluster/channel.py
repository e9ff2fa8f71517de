"""Channel: short messages among the processes of a run, by way of process 0.

JAX has no public way to tell another process something outside of a computation. So
each process keeps its connection from the rendezvous, and a thread reads what comes.
Process 0 passes on what it gets, so that every message reaches all processes.

One message ends whoever gets it: that the sender fails, which a process says with
`Channel.fail`. The others would wait for it, until JAX ends them.
"""

import contextlib
import json
import os
import selectors
import socket
import threading
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

FOLLOWED = 76
"""Exit status of a process that ends because another one said that it fails."""
GRACE = 2.0  # seconds in which a process may find the same mistake by itself
_FAILED, _OVER = "failed", "over"  # topics


@runtime_checkable
class Handler(Protocol):
    """Takes a message, in the thread of the channel."""

    def __call__(self, sender: int, text: str) -> None:
        """Takes what a process has sent."""
        ...


class Channel:
    """Sends messages to all other processes, and hands theirs to whoever listens.

    Args:
      process_id: number of this process.
      connections: connections that `connect_processes` made.
    """

    def __init__(self, process_id: int, connections: Sequence[socket.socket]) -> None:
        """Starts to read."""
        self.has_heard = False  # that another process fails
        self.has_lost = False  # the connection to another process
        self._is_over = False  # this process may end
        self._process_id, self._connections = process_id, tuple(connections)
        self._is_failing = threading.Event()
        self._sending, self._handing = threading.Lock(), threading.Lock()
        self._handlers: dict[str, Handler] = {}
        self._kept: dict[str, list[tuple[int, str]]] = {}  # messages that nobody took
        self._thread = threading.Thread(
            target=self._read_all, name="olsgd_jax-channel", daemon=True
        )
        self._thread.start()

    def send(self, topic: str, text: str) -> None:
        """Sends a message to all other processes."""
        line = json.dumps([self._process_id, topic, text]).encode() + b"\n"
        self._pass_on(line, self._connections)

    def listen(self, topic: str, handler: Handler) -> None:
        """Hands all messages of a topic to a handler, also those that came before."""
        with self._handing:
            self._handlers[topic] = handler
            for sender, text in self._kept.pop(topic, ()):
                handler(sender, text)

    def fail(self) -> None:
        """Tells all others that this process fails, and waits until they have gone.

        If it left before them, their computations would fail as well, and bury in
        tracebacks what it has to say.
        """
        self._is_failing.set()
        self.send(_FAILED, "")
        self.wait()

    def wait(self) -> None:
        """Waits until the others have gone, for as long as that may take."""
        self._thread.join(2 * GRACE)

    def _pass_on(self, line: bytes, receivers: Sequence[socket.socket]) -> None:
        with self._sending:
            for connection in receivers:
                with contextlib.suppress(OSError):  # it has gone
                    connection.sendall(line)

    def _read_all(self) -> None:
        """Reads until all others have gone."""
        begun = dict.fromkeys(self._connections, b"")
        with selectors.DefaultSelector() as selector:
            for connection in begun:
                selector.register(connection, selectors.EVENT_READ, connection)
            while selector.get_map():
                for key, _ in selector.select():
                    connection: socket.socket = key.data
                    try:
                        part = connection.recv(1 << 12)
                    except OSError:
                        part = b""
                    if not part:
                        self.has_lost = True
                        selector.unregister(connection)
                        continue
                    *lines, begun[connection] = (begun[connection] + part).split(b"\n")
                    for line in lines:
                        if self._process_id == 0:
                            others = [x for x in begun if x is not connection]
                            self._pass_on(line + b"\n", others)
                        self._take(*json.loads(line))
                    if self._is_over:
                        return

    def _take(self, sender: int, topic: str, text: str) -> None:
        if topic == _FAILED:
            self._follow(sender)
        elif topic == _OVER:
            self._is_over = True
        else:
            with self._handing:
                if topic in self._handlers:
                    self._handlers[topic](sender, text)
                else:
                    self._kept.setdefault(topic, []).append((sender, text))

    def _follow(self, sender: int) -> None:
        """Ends this process, if it does not fail by itself.

        Process 0 is the last to end: without it JAX ends the others, and says so.
        """
        self.has_heard = True
        if self._is_failing.wait(GRACE if self._process_id else 1.5 * GRACE):
            self._is_over = self._process_id > 0
            return
        text = f"olsgd_jax: process {sender} failed, so this process ends too\n"
        os.write(2, text.encode())
        if self._process_id == 0:
            self.send(_OVER, "")
            for connection in self._connections:
                connection.settimeout(GRACE / 2)
                with contextlib.suppress(OSError):
                    while connection.recv(1 << 12):
                        pass
        os._exit(FOLLOWED)


_channel: Channel | None = None


def open_channel(process_id: int, connections: Sequence[socket.socket]) -> None:
    """Opens the channel of this process."""
    global _channel
    _channel = Channel(process_id, connections)


def current_channel() -> Channel | None:
    """Gives the channel of this process; None if it has joined no others."""
    return _channel
