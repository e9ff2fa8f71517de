"""The result of a benchmark: measurements, and predictions of the model of time."""

from typing import NamedTuple

from olsgd_jax.bench.turns import Quartiles
from olsgd_jax.types import Option


class Compared(NamedTuple):
    """The result for one strategy; all times are seconds per round."""

    strategy: str  # as given on the command line
    driver: str
    form: str  # form of the mean (see `drivers.forms`)
    means_per_round: int
    bytes_per_round: int  # payload of one worker
    means: Quartiles  # all means of the round, timed alone
    with_mean: Quartiles  # the round
    without_mean: Quartiles  # the same round without its means
    exposed: Quartiles  # the difference of the two in each repetition
    hidden: float  # fraction of the means' time that is not exposed
    predicted: float  # time of the round by the model of time
    ratio: float  # measured / predicted


class Measured(NamedTuple):
    """The whole result; times are in seconds."""

    device_kind: str
    num_devices: int
    num_processes: int
    num_workers: int
    data: int  # devices of a worker that share its batches
    fsdp: int  # devices of a worker that share its model as well
    jax_version: str
    model: str
    reduction: str  # how messages become a mean
    parameter_bytes: int  # of one worker
    batch_size: int  # of one worker
    sync_period: int
    sync_period_reason: str
    repetitions: int
    step: Quartiles  # one local step: `sync_period` consecutive steps / `sync_period`
    one_number_mean: Quartiles
    model_mean: Quartiles  # as delayed strategies send it
    bandwidth: float  # derived from the two means, in bytes per second
    latency: float  # derived from the two means
    strategies: tuple[Compared, ...]


def to_json(result: Measured | Compared | Quartiles) -> dict:
    """Converts a result to a dict that JSON can hold.

    >>> to_json(Quartiles(1.0, 2.0, 3.0))
    {'first': 1.0, 'median': 2.0, 'third': 3.0}
    """
    return {name: _plain(x) for name, x in result._asdict().items()}


def _plain(value: Option) -> Option:
    if hasattr(value, "_asdict"):
        return to_json(value)
    return [_plain(x) for x in value] if isinstance(value, tuple) else value
