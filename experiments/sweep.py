"""Many runs, one after the other, that can be stopped and go on where they stopped."""

import argparse
import dataclasses
import pathlib
from collections.abc import Callable, Iterable, Sequence

import jax
from rich.console import Console
from rich.markdown import Markdown

from experiments.options import add_config_options, config_options
from experiments.presets import PRESETS, preset
from experiments.progress import make_progress, shown
from experiments.reporting.markdown import to_markdown
from experiments.reporting.sections import Section
from olsgd_jax import Config, Run, describe, read_records, train, write_records
from olsgd_jax.build import build
from olsgd_jax.types import Option


def run_all(
    configs: dict[str, Config], out: pathlib.Path, console: Console
) -> dict[str, Run]:
    """Trains every config that has not come to its end yet.

    Args:
      configs: by name; run `name` is kept in out/name.jsonl.
      out: a directory.
      console: where progress is shown.

    Returns:
      All runs by name. One that diverged is a result like any other.
    """
    files = {name: out / f"{name}.jsonl" for name in configs}
    todo = [name for name in configs if not _is_done(files[name], configs[name])]
    done = len(configs) - len(todo)
    if done:
        console.print(f"{done} of {len(configs)} runs are in {out} already")
    with make_progress(console) as progress:
        total = progress.add_task("runs", total=len(configs), completed=done, shown="")
        for name in todo:
            config = configs[name]
            task = progress.add_task(name, total=config.num_rounds, shown="compiling")
            try:
                parts = build(config)
                records = shown(train(config, parts), progress, task)
                write_records(files[name], config, records, describe(config, parts))
            except FloatingPointError as error:
                progress.print(f"{name}: {error}", markup=False)
            progress.remove_task(task)
            progress.advance(total)
            jax.clear_caches()  # programs of another run are of no use
    return {name: read_records(file) for name, file in files.items()}


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
    """Gives the options that decide what comes out; where data lies is not one."""
    return dataclasses.asdict(dataclasses.replace(config, data_dir=None))


def sweep_parser(
    description: str | None,
    out: str,
    sync_periods: Sequence[int],
    without: Sequence[str] = (),
) -> argparse.ArgumentParser:
    """Makes a command line with the options that all sweeps have.

    Args:
      description: what the sweep is for.
      out: the directory where runs are kept by default.
      sync_periods: τ of its runs by default.
      without: options of a config that the sweep itself decides on, beside strategy
        and sync period.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--out", type=pathlib.Path, default=pathlib.Path(out), help="directory"
    )
    parser.add_argument(
        "--preset", choices=tuple(PRESETS), default="cpu", help="options to begin with"
    )
    parser.add_argument("--epochs", type=float, help="by default those of the preset")
    parser.add_argument(
        "--sync-periods", type=int, nargs="+", default=sync_periods, help="τ"
    )
    decided = ("strategy", "strategy_args", "sync_period", *without)
    add_config_options(parser, without=decided)
    return parser


def preset_of(
    args: argparse.Namespace, strategy: str, sync_period: int, **options: Option
) -> Config:
    """Makes the config of one run of a sweep; options that were given go first."""
    return preset(
        args.preset,
        strategy,
        sync_period,
        epochs=args.epochs,
        **{**options, **config_options(args)},
    )


def run_sweep(
    parser: argparse.ArgumentParser,
    runs: Callable[[argparse.Namespace], dict[str, Config]],
    section: Callable[[argparse.Namespace, Iterable[Run]], Section | None],
    name: str,
) -> None:
    """Does what a command line asks for: trains, and shows what came out.

    Args:
      parser: made by `sweep_parser`.
      runs: names all runs.
      section: makes of the runs what is shown; None where they do not suffice.
      name: of the file in the sweep's directory that gets the same as Markdown.
    """
    args = parser.parse_args()
    console = Console()
    try:
        configs = runs(args)
        # Before anything asks for a device: afterwards their number is fixed.
        workers = max(config.num_workers for config in configs.values())
        jax.config.update("jax_num_cpu_devices", workers)
        done = run_all(configs, args.out, console)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    text = to_markdown(filter(None, [section(args, done.values())]))
    (args.out / name).write_text(text, encoding="utf-8")
    console.print(Markdown(text))
