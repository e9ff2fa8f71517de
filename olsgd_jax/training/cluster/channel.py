"""Channel: short messages between the processes of a run, relayed by process 0.

JAX has no public way to send a message outside of a computation. So each process keeps
its connection from the rendezvous, and a thread reads from it. Process 0 forwards what
it receives, so every message reaches all processes.

`Channel.fail` sends a message that ends its receivers. Without it, they would wait for
the process that failed until JAX ends them.
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
"""Exit status of a process that ends because another one failed."""
GRACE = 2.0  # seconds for a process to find the same mistake by itself
_FAILED, _OVER = "failed", "over"  # topics


@runtime_checkable
class Handler(Protocol):
    """Handles a message, in the channel's thread."""

    def __call__(self, sender: int, text: str) -> None:
        """Handles what process `sender` has sent."""
        ...


class Channel:
    """Sends messages to all other processes, and passes theirs to handlers.

    Args:
      process_id: number of this process.
      connections: what `connect_processes` returned.
    """

    def __init__(self, process_id: int, connections: Sequence[socket.socket]) -> None:
        """Starts the thread that reads."""
        self.has_heard = False  # that another process failed
        self.has_lost = False  # a connection to another process
        self._is_over = False  # nothing more needs to be read
        self._process_id, self._connections = process_id, tuple(connections)
        self._is_failing = threading.Event()
        self._sending, self._handing = threading.Lock(), threading.Lock()
        self._handlers: dict[str, Handler] = {}
        self._kept: dict[str, list[tuple[int, str]]] = {}  # until a handler comes
        self._thread = threading.Thread(
            target=self._read_all, name="olsgd_jax-channel", daemon=True
        )
        self._thread.start()

    def send(self, topic: str, text: str) -> None:
        """Sends a message to all other processes."""
        line = json.dumps([self._process_id, topic, text]).encode() + b"\n"
        self._write(line, self._connections)

    def listen(self, topic: str, handler: Handler) -> None:
        """Passes all messages of a topic to a handler, earlier ones included."""
        with self._handing:
            self._handlers[topic] = handler
            for sender, text in self._kept.pop(topic, ()):
                handler(sender, text)

    def fail(self) -> None:
        """Tells all others that this process failed, and waits until they have ended.

        If it ended first, their computations would fail too, and their tracebacks
        would bury its message.
        """
        self._is_failing.set()
        self.send(_FAILED, "")
        self.wait()

    def wait(self) -> None:
        """Waits until the others have ended; it gives up after twice `GRACE`."""
        self._thread.join(2 * GRACE)

    def _write(self, line: bytes, receivers: Sequence[socket.socket]) -> None:
        with self._sending:
            for connection in receivers:
                with contextlib.suppress(OSError):  # the receiver has ended
                    connection.sendall(line)

    def _read_all(self) -> None:
        """Reads until all others have ended."""
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
                            self._write(line + b"\n", others)
                        self._handle(*json.loads(line))
                    if self._is_over:
                        return

    def _handle(self, sender: int, topic: str, text: str) -> None:
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
        """Ends this process, unless it fails by itself within `GRACE`.

        Process 0 ends last: if it ended first, JAX would end the others with an error
        of its own.
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
    """Returns the channel of this process; None if it has not joined any others."""
    return _channel
