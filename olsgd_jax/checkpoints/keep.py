"""Which checkpoints stay: the newest ones, and the one with the highest score.

Scores lie in the checkpoints, so that they count for whoever opens the directory next;
one that cannot be read is the lowest of all. A checkpoint that goes is moved first and
deleted then: what has its number as a name is never half of one, whenever a process is
killed.
"""

import json
import math
import pathlib
import shutil
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import jax

LOWEST = -1e300  # JSON has no infinity
GOING = "going"
"""Where checkpoints are that are about to be deleted."""


@runtime_checkable
class Numbered(Protocol):
    """What orbax knows of a checkpoint."""

    step: int


class NewestAndBest:
    """Says to orbax which checkpoints of a directory stay.

    Args:
      keep: how many of the newest.
      directory: of the checkpoints.

    >>> import tempfile, types
    >>> policy = NewestAndBest(keep=1, directory=pathlib.Path(tempfile.mkdtemp()))
    >>> for number, score in ((1, 0.9), (2, 0.1), (3, 0.2)):
    ...     _ = policy.note(number, score)
    >>> found = [types.SimpleNamespace(step=number) for number in (1, 2, 3)]
    >>> policy.should_preserve(found, context=None)
    [True, False, True]
    """

    def __init__(self, keep: int, directory: pathlib.Path) -> None:
        """Reads the scores of those that are there."""
        self._keep, self._scores = keep, scores_in(directory)

    def note(self, number: int, score: float) -> float:
        """Takes the score of another checkpoint, and gives it as it can be written."""
        self._scores[number] = max(score, LOWEST)
        return self._scores[number]

    def should_preserve(
        self, checkpoints: Sequence[Numbered], *, context: object
    ) -> list[bool]:
        """Says for each whether it stays; they come with the newest last."""
        del context
        numbers = [checkpoint.step for checkpoint in checkpoints]
        best = max(numbers, key=lambda number: (self._scores[number], number))
        stay = {best, *numbers[-self._keep :]}
        return [number in stay for number in numbers]


def delete_going(directory: pathlib.Path) -> None:
    """Deletes what has to go; the first process does."""
    if jax.process_index() == 0:
        shutil.rmtree(directory / GOING, ignore_errors=True)


def numbers_in(directory: pathlib.Path) -> list[int]:
    """Lists all checkpoints, the newest first; one may be damaged."""
    # Orbax does not list those whose own files are gone.
    names = [path.name for path in directory.iterdir()] if directory.exists() else []
    return sorted(map(int, filter(str.isdecimal, names)), reverse=True)


def scores_in(directory: pathlib.Path) -> dict[int, float]:
    """Reads the scores of all checkpoints.

    >>> import tempfile
    >>> directory = pathlib.Path(tempfile.mkdtemp())
    >>> for number, text in ((1, '{"score": 0.5}'), (2, '{"sco')):
    ...     (directory / str(number) / "about").mkdir(parents=True)
    ...     _ = (directory / str(number) / "about" / "metadata").write_text(text)
    >>> scores_in(directory) == {1: 0.5, 2: LOWEST}
    True
    """
    return {number: _score(directory / str(number)) for number in numbers_in(directory)}


def _score(checkpoint: pathlib.Path) -> float:
    try:
        about = json.loads((checkpoint / "about" / "metadata").read_bytes())
        score = float(about["score"])
    except (OSError, ValueError, KeyError, TypeError):
        return LOWEST
    return score if math.isfinite(score) else LOWEST
