"""Records as event files for TensorBoard."""

import pathlib
from collections.abc import Iterable, Iterator

from tensorboardX import SummaryWriter

from olsgd_jax.training import Entry, Record

FIELDS = ("train_loss", "learning_rate", "spread", "bytes_per_step", "seconds")


def with_events(records: Iterable[Entry], directory: pathlib.Path) -> Iterator[Entry]:
    """Passes records on, and writes each one as events.

    The step of an event is the number of examples, so that runs can be compared.
    """
    with SummaryWriter(str(directory)) as writer:
        for record in records:
            if isinstance(record, Record):
                for name, value in _scalars(record).items():
                    writer.add_scalar(name, value, global_step=record.examples)
                writer.flush()
            yield record


def _scalars(record: Record) -> dict[str, float]:
    scalars = {name: getattr(record, name) for name in FIELDS}
    for which, test in record.tests.items():
        scalars |= {f"test/{which}_{k}": x for k, x in test._asdict().items()}
        if record.tokens is not None:
            scalars[f"test/{which}_perplexity"] = test.perplexity
    if record.tokens is not None:
        scalars["tokens"] = record.tokens
    return scalars
