"""Many runs, one after the other; a stopped sweep continues where it was.

A run is named after its config, so sweeps in the same directory share their runs.
"""

import dataclasses
import pathlib
from collections.abc import Iterable, Mapping
from typing import TypeAlias

import jax
import numpy as np
from jax.experimental import multihost_utils
from rich.console import Console

from experiments.cli.progress import make_progress, shown
from olsgd_jax.training import (
    Config,
    Run,
    build,
    describe,
    load_dataset,
    read_records,
    train,
    write_records,
)
from olsgd_jax.types import Option

Args: TypeAlias = Mapping[str, float] | None


def name_of(config: Config) -> str:
    """Names a run after the options in which the runs of a sweep differ."""
    usual = Config(strategy=config.strategy, reduction=config.reduction)
    own = _changed(config.strategy_args, usual.strategy_args)
    if config.reduction != Config.reduction:
        args = _changed(config.reduction_args, usual.reduction_args)
        own += [config.reduction, *args]
    last = f"tau{config.sync_period}", f"seed{config.seed}"
    return "-".join([config.partition, config.strategy, *own, *last])


def _changed(args: Args, defaults: Args) -> list[str]:
    return [
        f"{arg}{value:g}"
        for arg, value in sorted((args or {}).items())
        if (defaults or {}).get(arg) != value
    ]


def run_all(
    configs: Iterable[Config], out: pathlib.Path, console: Console
) -> dict[str, Run]:
    """Trains every config whose run has not finished yet.

    Args:
      configs: options of the runs; each is kept in `out`, in a file of its name.
      out: a directory.
      console: shows the progress.

    Returns:
      All runs by name, including those that diverged. Only process 0 reads and writes
      the files; other processes train with it, and get an empty dict.
    """
    named = {name_of(config): config for config in configs}
    files = {name: out / f"{name}.jsonl" for name in named}
    is_first = jax.process_index() == 0
    is_done = [is_first and _is_done(files[name], named[name]) for name in named]
    # Other processes may see other files, or the same ones later.
    is_done = multihost_utils.broadcast_one_to_all(np.array(is_done, np.int32))
    todo = [name for name, done in zip(named, is_done, strict=True) if not done]
    done = len(named) - len(todo)
    if done:
        console.print(f"{done} of {len(named)} runs are in {out} already")
    # The first time, this decodes a data set and shows a bar of its own. The thread
    # that draws the bars below would not survive the imports that this needs.
    for data in sorted({(named[x].dataset, named[x].data_dir) for x in todo}, key=str):
        load_dataset(*data)
    with make_progress(console) as progress:
        total = progress.add_task("runs", total=len(named), completed=done, shown="")
        for name in todo:
            config = named[name]
            task = progress.add_task(name, total=config.num_rounds, shown="compiling")
            try:
                components = build(config)
                records = shown(train(config, components), progress, task)
                write_records(
                    files[name], config, records, describe(config, components)
                )
            except FloatingPointError as error:
                progress.print(f"{name}: {error}", markup=False)
            progress.remove_task(task)
            progress.advance(total)
            jax.clear_caches()  # no other run uses these programs
    return {name: read_records(file) for name, file in files.items() if is_first}


def _is_done(file: pathlib.Path, config: Config) -> bool:
    if not file.exists():
        return False
    try:
        run = read_records(file)
    except ValueError:  # cut off while it was written
        return False
    kept, asked = _options(Config(**run.config)), _options(config)
    changed = [
        f"{x}={kept[x]!r}, not {asked[x]!r}" for x in asked if kept[x] != asked[x]
    ]
    if changed:
        raise ValueError(
            f"{file} must be of the run that is asked for, but has "
            f"{'; '.join(changed)}; delete it, or use another --out"
        )
    return run.outcome is not None


def _options(config: Config) -> dict[str, Option]:
    """Returns the options that affect the result, so not where the data is."""
    return dataclasses.asdict(dataclasses.replace(config, data_dir=None))
