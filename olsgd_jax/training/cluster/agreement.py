"""Agreement: all processes stop after the same call, though not all were asked to.

Calls are counted. A process that is asked to stop writes how many it has made to the
key-value store of process 0, and its next call waits. The others find that there, and
do the same. When all have, the call after the largest count is the last one of each.

A thread looks into the store, so a call costs no time on the network, and waits only
once somebody is asked. JAX has a service that agrees in the same way. It catches
SIGTERM, and SIGTERM only, from `jax.distributed.initialize` on: a process whose loop
does not ask it could not be ended.
"""

import contextlib
import itertools
import math
import threading

import jax
from jax._src import distributed

PERIOD = 0.5  # seconds between two looks into the store
_numbers = itertools.count()  # of agreements; processes make them in the same order


class Agreement:
    """Says when to stop, the same in all processes; close it at the end.

    All processes make one, and call it equally often until it says that they stop.

    >>> from olsgd_jax.training.cluster.agreement import Agreement
    >>> agreement = Agreement()
    >>> agreement()
    False
    >>> agreement.is_asked = True
    >>> agreement()
    True
    """

    def __init__(self) -> None:
        """Begins to look for others that were asked."""
        self.is_asked = False  # whoever wants to stop sets it; a signal handler may
        self._num_calls, self._last = 0, math.inf
        self._lock, self._is_over = threading.Lock(), threading.Event()
        self._place = f"olsgd_jax/agreement/{next(_numbers)}/"
        self._thread = threading.Thread(
            target=self._watch, name="olsgd_jax-agreement", daemon=True
        )
        if jax.process_count() > 1:
            self._thread.start()

    def __call__(self) -> bool:
        """Says whether to stop here."""
        if jax.process_count() == 1:
            return self.is_asked
        with self._lock:
            self._num_calls += 1
            return self._num_calls >= self._last

    def close(self) -> None:
        """Looks no more."""
        self._is_over.set()
        if self._thread.is_alive():
            self._thread.join()

    def _watch(self) -> None:
        # Where process 0 has gone, JAX ends this process.
        with contextlib.suppress(jax.errors.JaxRuntimeError):
            while not self._is_over.wait(PERIOD):
                if self.is_asked or self._counts():
                    return self._agree()

    def _agree(self) -> None:
        own, all_processes = jax.process_index(), jax.process_count()
        with self._lock:  # the next call waits
            client = distributed.global_state.client
            assert client is not None  # there are other processes
            client.key_value_set(f"{self._place}{own}", str(self._num_calls))
            while len(counts := self._counts()) < all_processes:
                if self._is_over.wait(PERIOD / 10):
                    return
            self._last = max(counts) + 1

    def _counts(self) -> list[int]:
        """Reads how many calls the processes had made that know of it."""
        client = distributed.global_state.client
        assert client is not None  # there are other processes
        return [int(count) for _, count in client.key_value_dir_get(self._place)]
