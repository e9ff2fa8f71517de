"""What a benchmark measured, and what the model of time predicts."""

from typing import NamedTuple

from olsgd_jax.bench.turns import Quartiles
from olsgd_jax.types import Option


class Compared(NamedTuple):
    """One strategy; all times are seconds of one round."""

    strategy: str  # as it was asked for
    driver: str
    form: str  # of its means
    means_per_round: int
    bytes_per_round: int  # that a worker hands to the network
    means: Quartiles  # of the round, by themselves
    with_mean: Quartiles  # the round
    without_mean: Quartiles  # the same round, with its means left out
    exposed: Quartiles  # the difference of the two, repetition by repetition
    hidden: float  # the part of the means' time that is not exposed
    predicted: float  # the round, by the model of time
    ratio: float  # measured over predicted


class Measured(NamedTuple):
    """All that was measured; times are in seconds."""

    device_kind: str
    num_devices: int
    num_processes: int
    num_workers: int
    data: int  # devices of a worker that share its batches
    fsdp: int  # devices of a worker that share its model as well
    jax_version: str
    model: str
    parameter_bytes: int  # of one worker
    batch_size: int  # of one worker
    sync_period: int
    sync_period_reason: str
    repetitions: int
    step: Quartiles  # one local step, as one of `sync_period` in a row
    one_number_mean: Quartiles
    model_mean: Quartiles  # as delayed strategies send it
    bandwidth: float  # that explains the two, in bytes per second
    latency: float
    strategies: tuple[Compared, ...]


def to_json(result: Measured | Compared | Quartiles) -> dict:
    """Gives a result as it can be written in JSON, with the names of its fields.

    >>> to_json(Quartiles(1.0, 2.0, 3.0))
    {'first': 1.0, 'median': 2.0, 'third': 3.0}
    """
    return {name: _plain(x) for name, x in result._asdict().items()}


def _plain(value: Option) -> Option:
    if hasattr(value, "_asdict"):
        return to_json(value)
    return [_plain(x) for x in value] if isinstance(value, tuple) else value
