"""Question: is there a config that fails inside JAX, or never ends?

Run:     python -m experiments.fuzz --examples 300
Cost:    about 2 seconds of one core for each, most of them compilation
Answer:  none among 300: 148 trained two rounds, and 152 were refused with the name of
         an option, 15 different ones in all

Hypothesis, which the extra `dev` installs, draws good and bad options at random. Every
config must either train two rounds of digits or be refused by the library itself, with
a message that names one of its options. A config that takes longer than --limit is
printed and ends the script.
"""

import collections
import os
import re
import threading
import traceback
import warnings

import hypothesis
import jax
from rich.console import Console

import olsgd_jax
from experiments.cli.options import command_parser, use_cpu_devices
from experiments.cli.table import make_table
from experiments.robustness.fuzz_configs import TYPES, configs
from olsgd_jax.training import (
    Config,
    DivergedError,
    check_count,
    check_number,
    check_seed,
    train,
)

ROOT = os.path.dirname(olsgd_jax.__file__)


class UnexpectedError(Exception):
    """A config ended in a way that none may."""


def outcome(options: dict) -> str:
    """Trains two rounds, or tells which option was refused.

    Raises:
      UnexpectedError: if training ended in any other way; its cause is that error.
    """
    try:
        *_, last = train(Config(**options))
    except Exception as error:
        ended = _explained(error)
        if ended is None:
            raise UnexpectedError(f"{type(error).__name__}: {error}") from error
        return ended
    if last.round != 2:
        raise UnexpectedError(f"round {last.round} was the last")
    return "ran"


def _explained(error: Exception) -> str | None:
    """Names what an error is about; None if its message does not."""
    [*_, (frame, _)] = traceback.walk_tb(error.__traceback__)
    if not frame.f_code.co_filename.startswith(ROOT) or "\n" in str(error):
        return None
    if isinstance(error, DivergedError):
        return "diverged" if f" in round {error.round} of " in str(error) else None
    named = [name for name in TYPES if re.match(rf"{name}\b", str(error))]
    is_kind = isinstance(error, (ValueError, TypeError, OSError))
    return f"refused: {named[0]}" if named and is_kind else None


def explore(
    num_examples: int, seed: int, limit: float, console: Console
) -> tuple[collections.Counter[str], list[str]]:
    """Tries configs; counts how they ended, and lists those that failed."""
    counts, failures = collections.Counter(), []

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=num_examples,
        deadline=None,
        database=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
    )
    @hypothesis.given(configs())
    def try_one(options: dict) -> None:
        def give_up() -> None:
            console.print(f"hangs: {options}", markup=False, soft_wrap=True)
            os._exit(1)

        timer = threading.Timer(limit, give_up)
        timer.start()
        try:
            counts[outcome(options)] += 1
        except UnexpectedError as error:
            counts["failed"] += 1
            failures.append(f"{options}\n    {error}")
            console.print(failures[-1], markup=False, soft_wrap=True)
        finally:
            timer.cancel()
            if counts.total() % 25 == 0:
                console.print(f"{counts.total()} configs: {dict(counts)}")
                jax.clear_caches()  # all their programs would fill memory

    try_one()
    return counts, failures


def main() -> None:
    parser = command_parser(__doc__)
    add = parser.add_argument
    add("--examples", type=int, default=300, help="number of configs; %(default)s")
    add("--seed", type=int, default=0, help="random seed; %(default)s")
    add("--limit", type=float, default=600, help="seconds per config; %(default)g")
    args = parser.parse_args()
    try:
        check_count("--examples", args.examples)
        check_seed("--seed", args.seed)
        check_number("--limit", args.limit, 0, threading.TIMEOUT_MAX, "[]")
    except ValueError as error:
        parser.error(str(error))
    use_cpu_devices(4)
    warnings.simplefilter("error")
    console = Console()
    counts, failures = explore(args.examples, args.seed, args.limit, console)
    rows = [[name, str(number)] for name, number in counts.most_common()]
    console.print(make_table(["How it ended", "Configs"], rows))
    raise SystemExit(bool(failures))


if __name__ == "__main__":
    main()
