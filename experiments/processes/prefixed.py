"""Output of several processes, each line prefixed with its process number."""

import os
import selectors
import subprocess
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

KEPT = 1 << 16  # characters
COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red")


class Prefixed:
    """Shows the output of processes as it arrives, line by line.

    Their standard output goes to ours, and their standard error to ours.
    """

    def __init__(self, processes: Sequence[subprocess.Popen]):
        self._pipes = selectors.DefaultSelector()
        self._begun: dict[int, bytes] = {}  # unfinished lines, by file descriptor
        self._errors_of = [""] * len(processes)
        consoles = Console(file=sys.stdout), Console(file=sys.stderr)
        for number, process in enumerate(processes):
            for console, pipe in zip(
                consoles, (process.stdout, process.stderr), strict=True
            ):
                assert pipe is not None
                self._begun[pipe.fileno()] = b""
                self._pipes.register(pipe, selectors.EVENT_READ, (number, console))
        self._errors = consoles[1]

    def last_errors(self, number: int) -> str:
        """Returns the end of what a process has written to standard error."""
        return self._errors_of[number]

    @property
    def is_open(self) -> bool:
        """Whether a process may still print."""
        return bool(self._pipes.get_map())

    def show(self, timeout: float) -> None:
        """Shows new output, or waits up to `timeout` seconds for some."""
        for key, _ in self._pipes.select(timeout):
            number, console = key.data
            part = os.read(key.fd, 1 << 16)
            *lines, rest = (self._begun[key.fd] + part).split(b"\n")
            if not part:
                self._pipes.unregister(key.fileobj)
                lines, rest = [rest] if rest else [], b""
            self._begun[key.fd] = rest
            for line in lines:
                self._print(console, number, line.decode(errors="replace"))

    def say(self, text: str) -> None:
        """Prints a message of the launcher itself."""
        self._errors.print(Text(f"[launch] {text}", style="bold"), soft_wrap=True)

    def _print(self, console: Console, number: int, line: str) -> None:
        if console is self._errors:
            self._errors_of[number] = f"{self._errors_of[number]}{line}\n"[-KEPT:]
        start = Text(f"[{number}] ", style=COLOURS[number % len(COLOURS)])
        console.print(start + Text.from_ansi(line), soft_wrap=True, highlight=False)
