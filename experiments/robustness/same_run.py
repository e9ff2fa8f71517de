"""Whether two runs ended the same: records, model and kept checkpoints."""

import pathlib
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.cli.output import CHECKPOINTS, RECORDS
from olsgd_jax.training import Checkpoints, Config, Record, build, read_records


class End(NamedTuple):
    """What a finished run leaves behind, without times."""

    outcome: str | None
    records: list[Record]
    round: int  # of the last checkpoint
    state: dict[str, bytes]  # in that checkpoint, by name
    facts: dict  # in that checkpoint, except for the commit
    kept: list[str]  # names of all checkpoints


def end_of(out: pathlib.Path) -> End:
    """Reads what a run of `experiments.train` has left in its directory.

    Raises:
      ValueError: if any of it is missing.
    """
    run = read_records(out / RECORDS)
    kept = sorted(path.name for path in (out / CHECKPOINTS).iterdir())
    with Checkpoints(out / CHECKPOINTS) as checkpoints:
        found = checkpoints.restore(build(Config(**run.config)).init())
    if found is None:
        raise ValueError(f"{out} must hold a checkpoint, got {kept}")
    leaves = jax.tree_util.tree_leaves_with_path(found.tree)
    flat = {jax.tree_util.keystr(path): _bytes(x) for path, x in leaves}
    facts = {k: x for k, x in found.facts.items() if k not in ("seconds", "commit")}
    facts["records"] = [{**row, "seconds": 0} for row in facts["records"]]
    records = [record._replace(seconds=0) for record in run.records]
    return End(run.outcome, records, found.number, flat, facts, kept)


def _bytes(x: jax.Array) -> bytes:
    is_key = jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(x) if is_key else x).tobytes()


def differences(end: End, other: End) -> list[str]:
    """Lists how two ends differ.

    A run that was killed right after its last checkpoint may keep one more than others,
    because it saves no further checkpoint that would delete it.

    >>> end = End("finished", [], 2, {"w": b"1"}, {}, ["1", "2"])
    >>> differences(end, end._replace(state={"w": b"2"}, kept=["2"]))
    ['state is not the same', "kept is ['2'], not ['1', '2']"]
    """
    found = [
        f"{name} is not the same"
        for name in End._fields[:-1]
        if getattr(end, name) != getattr(other, name)
    ]
    less, more = set(end.kept) - set(other.kept), set(other.kept) - set(end.kept)
    if less or len(more) > 1:
        found.append(f"kept is {other.kept}, not {end.kept}")
    return found


def bad_lines(out: pathlib.Path) -> list[str]:
    """Lists what is wrong with the records of a run stopped at any instant."""
    if not (out / RECORDS).exists() or not (out / RECORDS).read_bytes():
        return []  # it was stopped before it wrote any
    try:
        rounds = [record.round for record in read_records(out / RECORDS).records]
    except ValueError as error:
        return [str(error)]
    in_order = all(a < b for a, b in zip(rounds, rounds[1:], strict=False))
    return [] if in_order else [f"{out / RECORDS} has rounds {rounds}"]
