"""Dry runs: what would run, and roughly how long it would take."""

import argparse
import dataclasses
import pathlib
import tempfile
import time
import warnings

import jax
from rich.console import Console
from rich.table import Table

from experiments.cli.output import CHECKPOINTS, describe_start, silence_orbax
from olsgd_jax.training import (
    Checkpoints,
    Components,
    Config,
    RollbackPolicy,
    describe,
    train,
)

PROBE = 8  # examples whose gradient is timed for an estimate


def describe_run(config: Config, components: Components, console: Console) -> None:
    """Prints what would run, and roughly for how long."""
    facts = describe(config, components)
    table = Table("Option", "Value", title="What would run")
    for name, value in dataclasses.asdict(config).items():
        table.add_row(name, str(value))
    console.print(table)
    console.print(
        f"{facts.num_parameters:,} parameters; a worker sends "
        f"{facts.bytes_per_round:,} bytes per round; {facts.num_steps:,} local steps, "
        f"{facts.num_epochs:.1f} epochs"
    )
    with console.status("timing a gradient"):
        seconds = estimate(config, components, facts.num_steps)
    console.print(f"About {_words(seconds)}, from the gradient of {PROBE} examples")


def check_resume(
    config: Config,
    components: Components,
    rollbacks: RollbackPolicy,
    args: argparse.Namespace,
) -> list[str]:
    """Resumes as the run would, but trains nothing.

    Checkpoints are read through links in a temporary directory, so that a damaged one
    is not renamed.

    Returns:
      What the run would print before its first round.

    Raises:
      ValueError: if the run would not start.
    """
    own = args.out.absolute() / CHECKPOINTS
    silence_orbax()
    with (
        tempfile.TemporaryDirectory() as directory,
        warnings.catch_warnings(record=True, action="always") as caught,
    ):
        try:
            for path in own.iterdir() if own.exists() else ():
                if path.name.isdecimal():
                    pathlib.Path(directory, path.name).symlink_to(path)
            with Checkpoints(directory, args.keep) as checkpoints:
                train(config, components, checkpoints=checkpoints, rollbacks=rollbacks)
                said = [*(str(x.message) for x in caught), describe_start(checkpoints)]
        except (ValueError, OSError) as error:
            raise ValueError(str(error).replace(directory, str(own))) from error
        return [text.replace(directory, str(own)) for text in said]


def estimate(config: Config, components: Components, num_steps: int) -> float:
    """Estimates the seconds of a run from the time of one gradient.

    CPU devices share the machine; other devices run in parallel.
    """
    batch = {
        "inputs": components.dataset.train_inputs[:PROBE],
        "labels": components.dataset.train_labels[:PROBE],
    }
    grad = jax.jit(jax.grad(components.task.loss, has_aux=True))
    model = components.task.init(jax.random.key(0))
    times = []
    for _ in range(4):
        start = time.perf_counter()
        jax.block_until_ready(grad(*model, batch, jax.random.key(0)))
        times.append(time.perf_counter() - start)
    examples = num_steps * config.batch_size * config.num_workers
    if components.mesh is not None and jax.devices()[0].platform != "cpu":
        examples /= config.num_workers
    return min(times) / PROBE * examples


def _words(seconds: float) -> str:
    for unit, size in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} seconds"
