"""Agreement: all processes stop after the same call, though not all were asked to.

Calls are counted. A process that is asked to stop tells the others how many calls it
has made, and so does each of them when it hears that; from then on a call waits until
the counts of all are known. The call after the largest count is the last one of each.

A call takes no time on the network until somebody is asked. JAX has a service that
agrees in the same way. It catches SIGTERM, and SIGTERM only, from the call of
`jax.distributed.initialize` on: a process whose loop does not ask could not be ended.
"""

import itertools
import threading

import jax

from olsgd_jax.training.cluster.channel import current_channel

_numbers = itertools.count()  # of agreements; processes make them in the same order


class Agreement:
    """Says when to stop, the same in all processes.

    All processes make one, and call it equally often until it says that they stop.

    Raises:
      RuntimeError: if there are other processes and `join` did not connect them.

    >>> from olsgd_jax.training.cluster.agreement import Agreement
    >>> agreement = Agreement()
    >>> agreement()
    False
    >>> agreement.is_asked = True
    >>> agreement()
    True
    """

    def __init__(self) -> None:
        """Begins to listen for others that were asked."""
        self.is_asked = False  # whoever wants to stop sets it; a signal handler may
        self._num_calls = 0
        self._counts: dict[int, int] = {}  # calls made by each process, once asked
        self._changed = threading.Condition()
        self._topic = f"stop {next(_numbers)}"
        self._channel = current_channel()
        if jax.process_count() > 1:
            if self._channel is None:
                raise RuntimeError(
                    "processes must be connected by join to stop together, "
                    f"got {jax.process_count()} that were not; call it instead of "
                    "jax.distributed.initialize"
                )
            self._channel.listen(self._topic, self._hear)

    def __call__(self) -> bool:
        """Says whether to stop here.

        Raises:
          ConnectionError: if another process is gone that would have to know.
        """
        if jax.process_count() == 1:
            return self.is_asked
        with self._changed:
            if self.is_asked:
                self._tell()
            while self._counts and not self._changed.wait_for(self._is_agreed, 1):
                if self._channel is not None and self._channel.has_lost:
                    raise ConnectionError(
                        "processes must stay connected to stop together, got "
                        f"{len(self._counts)} of {jax.process_count()}; JAX or another "
                        "process may say which is gone"
                    )
            self._num_calls += 1
            return self._is_agreed() and self._num_calls > max(self._counts.values())

    def _is_agreed(self) -> bool:
        return len(self._counts) == jax.process_count()

    def _hear(self, sender: int, text: str) -> None:
        # A process that waits for this one in a computation still gets its answer:
        # this runs in another thread.
        with self._changed:
            self._counts[sender] = int(text)
            self._tell()
            self._changed.notify_all()

    def _tell(self) -> None:
        own = jax.process_index()
        if own not in self._counts:
            assert self._channel is not None  # there are other processes
            self._counts[own] = self._num_calls
            self._channel.send(self._topic, str(self._num_calls))
