"""What is measured in a run, and what else happens in it."""

import math
from collections.abc import Iterable, Sequence
from typing import Annotated, NamedTuple, TypeAlias

from olsgd_jax._checks import check_count
from olsgd_jax.training.evaluate import Evaluation
from olsgd_jax.training.options import between, whole
from olsgd_jax.types import Option

OUTCOMES = ("finished", "diverged")
"""Ways in which a run ends by itself."""

Count: TypeAlias = Annotated[int, check_count]
Whole: TypeAlias = Annotated[int, whole(0)]
Amount: TypeAlias = Annotated[float, between(0, math.inf, "[)")]


def _check_text(name: str, value: Option) -> None:
    if not isinstance(value, str):
        raise TypeError(f"{name} must be text, got {value!r}")


class Record(NamedTuple):
    """What was measured at one evaluation.

    >>> from olsgd_jax.training import Config, Record, train
    >>> [record] = train(Config(num_rounds=1))
    >>> record.step, record.examples
    (4, 512)
    """

    round: Count  # rounds so far
    step: Count  # local steps so far, of each worker
    examples: Whole  # processed by all workers so far, repeats included
    learning_rate: Amount  # of the last local step
    train_loss: float  # mean over workers and local steps since the last record
    tests: dict[str, Evaluation]  # results of the evaluated models, by name
    spread: Amount  # mean squared distance of the workers to the consensus
    bytes_per_step: Amount  # sent by one worker per local step
    seconds: Amount  # spent in rounds so far, without compilation and evaluation
    # Of language models alone, so None for all others:
    tokens: Annotated[int | None, whole(0)] = None  # as `examples`, in tokens
    # Written by the first evaluated model.
    sample: Annotated[str | None, _check_text] = None

    @property
    def test_loss(self) -> float:
        """Test loss of the first evaluated model."""
        return next(iter(self.tests.values())).loss

    @property
    def test_accuracy(self) -> float:
        """Test accuracy of the first evaluated model, in [0, 1]."""
        return next(iter(self.tests.values())).accuracy

    @property
    def test_perplexity(self) -> float:
        """Test perplexity of the first evaluated model."""
        return next(iter(self.tests.values())).perplexity

    @property
    def score(self) -> float:
        """Says which model of a run is best: the one with the highest score."""
        return self.test_accuracy if self.tokens is None else -self.test_loss


OF_TEXTS = ("tokens", "sample")
"""Fields that only records of language models have."""


class Rollback(NamedTuple):
    """A run diverged and went back to an earlier round.

    Later records do not count the rounds that were undone, nor their seconds.

    >>> from olsgd_jax.training import Rollback
    >>> Rollback(round=35, to=20, learning_rate=0.05).to
    20
    """

    round: Count  # the round that diverged
    to: Whole  # number of rounds that were kept; 0: the run started again
    learning_rate: Amount  # base rate from there on, γ


class Layout(NamedTuple):
    """How many workers a run has, and where they are.

    >>> from olsgd_jax.training import Layout
    >>> Layout(8, mapping=None, devices="4 x cpu", num_processes=2).num_workers
    8
    """

    num_workers: Count  # m
    mapping: str | None  # as in the config
    devices: str  # number and kind, in all processes
    num_processes: Count


class Resumed(NamedTuple):
    """A run was resumed with another layout.

    >>> from olsgd_jax.training import Layout, Resumed
    >>> before = Layout(16, None, "16 x cpu", 1)
    >>> Resumed(40, before, before._replace(num_workers=8)).after.num_workers
    8
    """

    round: Count  # rounds before the change
    before: Layout
    after: Layout


Entry: TypeAlias = Record | Rollback | Resumed
"""One thing that happened in a run."""


def kept_entries(history: Iterable[Entry]) -> list[Record | Resumed]:
    """Leaves out rollbacks and the entries that they undid."""
    kept: list[Record | Resumed] = []
    for entry in history:
        if isinstance(entry, Rollback):
            kept = [earlier for earlier in kept if earlier.round <= entry.to]
        else:
            kept.append(entry)
    return kept


def kept_records(history: Iterable[Entry]) -> list[Record]:
    """Gives the records that were not undone."""
    return [entry for entry in kept_entries(history) if isinstance(entry, Record)]


class Run(NamedTuple):
    """The contents of one file of records.

    >>> import pathlib, tempfile
    >>> from olsgd_jax.training import Config, read_records, write_records
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "run.jsonl"
    >>> write_records(path, Config(strategy="local_sgd"), records=[])
    >>> run = read_records(path)
    >>> run.config["strategy"], run.records, run.outcome
    ('local_sgd', [], 'finished')
    """

    config: dict[str, Option]  # as it was written; Config(**config) rebuilds it
    facts: dict[str, Option] | None  # what `describe` says about the config
    versions: dict[str, str]  # of Python and the packages that affect the numbers
    commit: str | None  # of this library; None if it ran outside git
    devices: str  # number and kind
    records: list[Record]  # without those that were undone
    rollbacks: list[Rollback]
    outcome: str | None  # one of OUTCOMES; None: stopped, or still running
    resumes: Sequence[Resumed] = ()  # changes of layout, without those undone
