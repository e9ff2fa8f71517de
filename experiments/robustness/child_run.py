"""A run in its own process, which may be killed."""

import contextlib
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Mapping

from experiments.cli.output import CHECKPOINTS


class ChildRun:
    """Continues the run in the directory `out`, or starts one.

    Takes options of `experiments.train`, and environment variables to add.
    """

    def __init__(
        self,
        out: pathlib.Path,
        options: Mapping[str, float],
        environment: Mapping[str, str],
    ) -> None:
        """Starts the process."""
        given = [f"--{name}={value}" for name, value in options.items()]
        command = [sys.executable, "-m", "experiments.train", "--resume"]
        out.mkdir(parents=True, exist_ok=True)
        self.out, self.options, self.before = out, options, names_in(out)
        self.output = out / "output.txt"
        with self.output.open("w") as file:
            self.process = subprocess.Popen(
                [*command, f"--out={out}", *given],
                env={**os.environ, "JAX_PLATFORMS": "cpu", **environment},
                stdout=file,
                stderr=subprocess.STDOUT,
            )

    def wait_until_writing(self) -> None:
        """Waits for the first sign of a checkpoint, or the end."""
        while self.process.poll() is None and not names_in(self.out) - self.before:
            time.sleep(0.002)

    def wait(self, seconds: float | None = None) -> None:
        """Waits for the end, or for some seconds."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)

    def kill(self) -> bool:
        """Kills the process with SIGKILL, and tells whether it was still running.

        Raises:
          RuntimeError: if it had failed before.
        """
        self.process.kill()
        status = self.process.wait()
        if status > 0:
            raise RuntimeError(f"a run does not continue:\n{self.output.read_text()}")
        return status < 0

    def phase(self) -> str:
        """Tells when it was killed, judging by its files."""
        output, names = self.output.read_text(), names_in(self.out)
        if "Resuming" not in output and "starting a new run" not in output:
            return "while it started"
        if any(name.endswith("-tmp") for name in names - self.before):
            return "while a checkpoint was written"
        if str(self.options["num-rounds"]) in names:
            return "after the last checkpoint"
        if names - self.before:
            return "between two checkpoints"
        return "before its first checkpoint"


def names_in(out: pathlib.Path) -> set[str]:
    """Lists the directory of a run's checkpoints."""
    directory = out / CHECKPOINTS
    return {path.name for path in directory.iterdir()} if directory.exists() else set()
