"""Preemption: a run that is asked to stop finishes its round, saves itself, and stops.

In several processes all stop after the same round, even if only one gets the signal.
Each process counts its calls. One that is asked to stop sends its count to the others,
and each of them answers with its own. From then on a call waits until all counts are
known. The call after the largest count is the last one in every process. Until somebody
is asked to stop, a call sends nothing.

JAX has a service that agrees in the same way, but it catches SIGTERM only, and from
`jax.distributed.initialize` on: SIGTERM could not end a process whose loop does not ask
that service.
"""

import itertools
import os
import signal
import threading
from types import FrameType

import jax

from olsgd_jax.training.cluster.channel import current_channel

RESUMABLE = 75
"""Exit status of a run that was asked to stop and can be resumed: EX_TEMPFAIL."""

_numbers = itertools.count()  # processes enter their contexts in the same order


class PreemptedError(Exception):
    """A run has stopped because it was asked to.

    >>> from olsgd_jax.training import PreemptedError
    >>> str(PreemptedError(round=7, is_saved=True))
    'asked to stop after round 7, which is saved'
    """

    def __init__(self, round: int, is_saved: bool) -> None:
        """Names the last round, and says whether it has a checkpoint."""
        saved = "which is saved" if is_saved else "and nothing is saved"
        super().__init__(f"asked to stop after round {round}, {saved}")
        self.round, self.is_saved = round, is_saved


class Preemption:
    """Makes SIGTERM and SIGINT ask a run to stop, instead of ending the process.

    Pass it to `train`, which calls it after every round. A second SIGINT ends the
    process at once. In several processes all must enter the context, and call it
    equally often until it returns True; it is enough that one of them gets a signal.
    The previous handlers are restored at the end. Python delivers signals to the main
    thread, so the context must be entered there.

    Raises:
      RuntimeError: on entry, if there are other processes that `join` did not connect.

    >>> import signal
    >>> from olsgd_jax.training import Config, PreemptedError, Preemption, train
    >>> with Preemption() as preempted:
    ...     signal.raise_signal(signal.SIGTERM)
    ...     try:
    ...         list(train(Config(), preempted=preempted))
    ...     except PreemptedError as error:
    ...         print(error)
    asked to stop after round 1, and nothing is saved
    """

    def __enter__(self) -> "Preemption":
        """Installs the handlers."""
        self._is_asked = False
        self._num_calls = 0
        self._counts: dict[int, int] = {}  # calls made by each process, once asked
        self._changed = threading.Condition()
        self._topic = f"stop {next(_numbers)}"
        self._channel = current_channel()
        if self._channel is not None:
            self._channel.listen(self._topic, self._hear)
        elif jax.process_count() > 1:
            raise RuntimeError(
                "processes must be connected by join to stop together, got "
                f"{jax.process_count()} that were not; call it instead of "
                "jax.distributed.initialize"
            )
        self._handlers = {
            number: signal.signal(number, self._ask)
            for number in (signal.SIGINT, signal.SIGTERM)
        }
        return self

    def __call__(self) -> bool:
        """Tells whether to stop after this round.

        Raises:
          ConnectionError: if a process is gone whose count is needed.
        """
        if self._channel is None:
            return self._is_asked
        with self._changed:
            if self._is_asked:
                self._tell()
            while self._counts and not self._changed.wait_for(self._is_agreed, 1):
                if self._channel.has_lost:
                    raise ConnectionError(
                        "processes must stay connected to stop together, got "
                        f"{len(self._counts)} of {jax.process_count()}; JAX or another "
                        "process may say which is gone"
                    )
            self._num_calls += 1
            return self._is_agreed() and self._num_calls > max(self._counts.values())

    def __exit__(self, *error: object) -> None:
        """Restores the previous handlers."""
        for number, handler in self._handlers.items():
            signal.signal(number, handler or signal.SIG_DFL)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        del frame
        if not self._is_asked:
            # Not print: the signal may have interrupted one.
            name = signal.Signals(number).name
            os.write(2, f"{name}: the run stops after this round\n".encode())
        self._is_asked = True
        # With a handler in Python, a second SIGINT would wait for the computation.
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    def _is_agreed(self) -> bool:
        return len(self._counts) == jax.process_count()

    def _hear(self, sender: int, text: str) -> None:
        # This runs in the channel's thread, so it answers even while the main thread
        # is in a computation.
        with self._changed:
            self._counts[sender] = int(text)
            self._tell()
            self._changed.notify_all()

    def _tell(self) -> None:
        own = jax.process_index()
        if own not in self._counts and self._channel is not None:
            self._counts[own] = self._num_calls
            self._channel.send(self._topic, str(self._num_calls))
