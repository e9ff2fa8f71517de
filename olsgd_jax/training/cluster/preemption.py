"""Preemption: a run that is asked to stop ends its round, saves itself, and stops."""

import os
import signal
from types import FrameType

from olsgd_jax.training.cluster.agreement import Agreement

RESUMABLE = 75
"""Exit status of a run that was asked to stop and can go on: EX_TEMPFAIL."""


class PreemptedError(Exception):
    """A run has stopped because it was asked to.

    >>> from olsgd_jax.training import PreemptedError
    >>> str(PreemptedError(round=7, is_saved=True))
    'asked to stop after round 7, which is saved'
    """

    def __init__(self, round: int, is_saved: bool) -> None:
        """Says after which round, and whether there is a checkpoint of it."""
        saved = "which is saved" if is_saved else "and nothing is saved"
        super().__init__(f"asked to stop after round {round}, {saved}")
        self.round, self.is_saved = round, is_saved


class Preemption:
    """Lets SIGTERM and SIGINT ask a run to stop, instead of ending the process.

    Give it to `train`; inside of the context it says whether the run was asked. A
    SIGINT after that ends the process at once. In several processes all have to use
    it, and it is enough that one of them gets a signal. Handlers of before are put
    back. Signals go to the main thread, where the context has to be entered.

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
        """Listens from here on."""
        self._agreement = Agreement()
        self._before = {
            number: signal.signal(number, self._ask)
            for number in (signal.SIGINT, signal.SIGTERM)
        }
        return self

    def __call__(self) -> bool:
        """Says whether to stop here; to be asked after every round."""
        return self._agreement()

    def __exit__(self, *error: object) -> None:
        """Puts the handlers back."""
        for number, handler in self._before.items():
            signal.signal(number, handler or signal.SIG_DFL)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        del frame
        if not self._agreement.is_asked:
            # Not print: what is interrupted may be one.
            name = signal.Signals(number).name
            os.write(2, f"{name}: the run stops after this round\n".encode())
        self._agreement.is_asked = True
        # Python would wait until a computation has ended.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
