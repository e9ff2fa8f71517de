"""What is measured of a run."""

from typing import NamedTuple

from olsgd_jax.evaluate import Evaluation
from olsgd_jax.types import Option

OUTCOMES = ("finished", "diverged")
"""How a run can end by itself."""


class Record(NamedTuple):
    """What was measured at one evaluation.

    >>> from olsgd_jax import Config, Record, train
    >>> [record] = train(Config(num_rounds=1))
    >>> record.step, record.examples
    (4, 512)
    """

    round: int  # rounds so far
    step: int  # local steps so far, of each worker
    examples: int  # that all workers have learned from so far, repeats included
    learning_rate: float  # of the last local step
    train_loss: float  # mean over workers and local steps since the last record
    tests: dict[str, Evaluation]  # of every evaluated model, by its name
    spread: float  # mean squared distance of the workers to the consensus
    bytes_per_step: float  # that one worker hands to the network, per local step
    seconds: float  # spent in rounds so far; neither compilation nor evaluation

    @property
    def test_loss(self) -> float:
        """Of the first evaluated model."""
        return next(iter(self.tests.values())).loss

    @property
    def test_accuracy(self) -> float:
        """Of the first evaluated model, in [0, 1]."""
        return next(iter(self.tests.values())).accuracy


class Run(NamedTuple):
    """The contents of one file of records.

    >>> import pathlib, tempfile
    >>> from olsgd_jax import Config, read_records, write_records
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "run.jsonl"
    >>> write_records(path, Config(strategy="local_sgd"), records=[])
    >>> run = read_records(path)
    >>> run.config["strategy"], run.records, run.outcome
    ('local_sgd', [], 'finished')
    """

    config: dict[str, Option]  # as it was written; Config(**config) rebuilds it
    facts: dict[str, Option] | None  # what follows from it, as `describe` says
    versions: dict[str, str]  # of Python and the packages that decide the numbers
    commit: str | None  # of this library; None where it ran outside of git
    devices: str  # how many of which kind
    records: list[Record]
    outcome: str | None  # one of OUTCOMES; None: it was stopped, or still runs
