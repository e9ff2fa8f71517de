"""Building blocks of command lines, and one option for each field of a config."""

import argparse
import dataclasses
from collections.abc import Sequence
from typing import Annotated, Literal, get_args, get_origin

import jax

from olsgd_jax import REDUCTIONS, STRATEGIES
from olsgd_jax.training import (
    DATASETS,
    MODELS,
    OPTIMIZERS,
    PARTITIONS,
    Config,
    option_types,
)
from olsgd_jax.training import add_process_options as add_process_options
from olsgd_jax.training import count as count
from olsgd_jax.training import join_as_asked as join_as_asked
from olsgd_jax.types import Option

_NAMES = {
    "dataset": DATASETS,
    "partition": PARTITIONS,
    "model": MODELS,
    "optimizer": OPTIMIZERS,
    "strategy": STRATEGIES,
    "reduction": REDUCTIONS,
}
"""Options that are a name in a registry."""


def command_parser(description: str | None) -> argparse.ArgumentParser:
    """Makes the parser of a command, whose help shows the description verbatim."""
    return argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def use_cpu_devices(number: int) -> None:
    """Gives this process `number` CPU devices; call it before anything uses one."""
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", number)


def add_config_options(
    parser: argparse.ArgumentParser,
    without: Sequence[str] = (),
    always_preset: bool = False,
) -> None:
    """Adds an option for every field of `Config` except those in `without`.

    The namespace holds only those that were given. The help shows the defaults of
    `Config`, unless the command always starts from a preset.
    """
    group = parser.add_argument_group(
        "options of the run",
        "Defaults are those of the preset."
        if always_preset
        else "With --preset, its values replace these defaults.",
    )
    defaults = {field.name: field.default for field in dataclasses.fields(Config)}
    for name, option_type in option_types(Config).items():
        if name not in without:
            meaning = option_type.meaning.replace("None: ", "default: ")
            if name in _NAMES:
                meaning = f"one of {', '.join(_NAMES[name])}"
            if not (always_preset or defaults[name] is None):
                meaning = f"{meaning}; {_in_words(defaults[name])}"
            group.add_argument(
                f"--{name.replace('_', '-')}",
                help=meaning.replace("%", "%%"),
                default=argparse.SUPPRESS,
                **_how_to_read(option_type.kind),
            )


def config_options(args: argparse.Namespace) -> dict[str, Option]:
    """Picks the fields of `Config` from the arguments that were given."""
    names = option_types(Config)
    given = {name: x for name, x in vars(args).items() if name in names}
    for name in {"strategy_args", "reduction_args"} & set(given):
        given[name] = dict(given[name])
    return given


def _in_words(default: Option) -> str:
    """Writes a default as the help of a command shows it."""
    if isinstance(default, bool):
        return "yes" if default else "no"
    if isinstance(default, tuple):
        return " ".join(map(str, default)) or "none"
    return f"{default:g}" if isinstance(default, float) else str(default)


def _how_to_read(kind: object) -> dict[str, Option]:
    """Gives the arguments by which argparse reads an option of this type."""
    if get_origin(kind) is Literal:
        return {"choices": get_args(kind)}
    if get_origin(kind) is Sequence:
        return {"nargs": "*", **_how_to_read(*get_args(kind))}
    if get_origin(kind) is Annotated:
        return _how_to_read(get_args(kind)[0])
    if get_origin(kind) is dict:
        return {"nargs": "*", "type": _name_and_number, "metavar": "NAME=NUMBER"}
    if kind is bool:
        return {"action": argparse.BooleanOptionalAction}
    return {"type": kind}


def _name_and_number(text: str) -> tuple[str, float]:
    name, equals, number = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"must be NAME=NUMBER, got {text!r}")
    try:
        value = float(number)
    except ValueError as error:
        message = f"must be a number after {name}=, got {number!r}"
        raise argparse.ArgumentTypeError(message) from error
    return name, int(value) if value.is_integer() else value
