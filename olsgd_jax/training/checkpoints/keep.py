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

import jax

LOWEST = -1e300  # JSON has no infinity
ABOUT = "about.json"
"""What a checkpoint holds beside its arrays."""
GOING = "going"
"""Where checkpoints are that are about to be deleted."""


class NewestAndBest:
    """Says which checkpoints of a directory stay.

    Args:
      keep: how many of the newest.
      directory: of the checkpoints.

    >>> import tempfile
    >>> policy = NewestAndBest(keep=1, directory=pathlib.Path(tempfile.mkdtemp()))
    >>> for number, score in ((1, 0.9), (2, 0.1), (3, 0.2)):
    ...     _ = policy.note(number, score)
    >>> sorted(policy.staying([3, 2, 1]))
    [1, 3]
    """

    def __init__(self, keep: int, directory: pathlib.Path) -> None:
        """Reads the scores of those that are there."""
        self._keep, self._scores = keep, scores_in(directory)

    def note(self, number: int, score: float) -> float:
        """Takes the score of another checkpoint, and gives it as it can be written."""
        self._scores[number] = max(score, LOWEST)
        return self._scores[number]

    def staying(self, numbers: Sequence[int]) -> set[int]:
        """Gives those that stay; they come with the newest first."""
        best = max(numbers, key=lambda number: (self._scores[number], number))
        return {best, *numbers[: self._keep]}


def open_directory(directory: pathlib.Path, unnamed: str) -> None:
    """Makes a directory, or deletes in it what a killed process left; the first does.

    Args:
      directory: of checkpoints.
      unnamed: a pattern of the names that a checkpoint has until it is whole.
    """
    if jax.process_index() == 0:
        directory.mkdir(parents=True, exist_ok=True)
        for path in directory.glob(unnamed):
            shutil.rmtree(path)
        delete_going(directory)


def move_away(directory: pathlib.Path, policy: NewestAndBest) -> None:
    """Moves checkpoints that do not stay to where they are deleted; the first does."""
    if jax.process_index() > 0:
        return
    numbers = numbers_in(directory)
    for number in set(numbers) - policy.staying(numbers):
        (directory / GOING).mkdir(exist_ok=True)
        (directory / str(number)).rename(directory / GOING / str(number))


def delete_going(directory: pathlib.Path) -> None:
    """Deletes what has to go; the first process does."""
    if jax.process_index() == 0:
        shutil.rmtree(directory / GOING, ignore_errors=True)


def numbers_in(directory: pathlib.Path) -> list[int]:
    """Lists all checkpoints, the newest first; one may be damaged."""
    names = [path.name for path in directory.iterdir()] if directory.exists() else []
    return sorted(map(int, filter(str.isdecimal, names)), reverse=True)


def scores_in(directory: pathlib.Path) -> dict[int, float]:
    """Reads the scores of all checkpoints.

    >>> import tempfile
    >>> directory = pathlib.Path(tempfile.mkdtemp())
    >>> for number, text in ((1, '{"score": 0.5}'), (2, '{"sco')):
    ...     (directory / str(number)).mkdir()
    ...     _ = (directory / str(number) / ABOUT).write_text(text)
    >>> scores_in(directory) == {1: 0.5, 2: LOWEST}
    True
    """
    return {number: _score(directory / str(number)) for number in numbers_in(directory)}


def _score(checkpoint: pathlib.Path) -> float:
    try:
        about = json.loads((checkpoint / ABOUT).read_bytes())
        score = float(about["score"])
    except (OSError, ValueError, KeyError, TypeError):
        return LOWEST
    return score if math.isfinite(score) else LOWEST
