"""Question: does a run recover when half of its workers leave and return?

Run:     python -m experiments.elastic --seeds 0 1 2 3 4
Cost:    2 minutes of CPU time for each strategy
Answer:  yes: Overlap Local-SGD ends at 96.2 % (95.5 to 96.6) and a test loss of 0.140
         (0.128 to 0.144), without the changes at 96.1 % (95.2 to 96.6) and 0.144 (0.134
         to 0.150). One round after half of the workers left, the loss is 0.207 in both;
         one round after they returned it is 0.167 (0.153 to 0.180) against 0.162 (0.154
         to 0.169), although it sees only 5/6 of the examples in the end.

Compares 16 workers on digits throughout with 16, 8 and 16 workers for a third of the
rounds each: stopped, and resumed from a checkpoint with other workers. The tables show
the consensus right before each change, one round after it, and at the end: mean [least,
most] over the seeds. Both have the same number of rounds, so the elastic run sees 5/6
of the examples. Records of all runs are in OUT.
"""

import dataclasses
import pathlib
import statistics
import tempfile
from collections.abc import Sequence

import jax
from rich.console import Console
from rich.table import Table

from experiments.cli.options import command_parser
from experiments.cli.table import make_table
from olsgd_jax import STRATEGIES
from olsgd_jax.training import (
    Checkpoints,
    Config,
    Entry,
    Run,
    read_records,
    train,
    write_records,
)

WORKERS = {"steady": (16, 16, 16), "elastic": (16, 8, 16)}
"""Number of workers in each third of a run."""

FIELDS = {"test_accuracy": "test accuracy in %", "test_loss": "test loss x 100"}
"""Fields of a record in the tables."""


def config_of(strategy: str, num_rounds: int) -> Config:
    """Makes the config of a run, with its initial and final number of workers."""
    return Config(
        strategy=strategy,
        num_rounds=num_rounds,
        num_workers=16,
        batch_size=8,
        evaluate_every=1,
        mapping="vmap",
    )


def ends(num_rounds: int) -> list[int]:
    """Returns the rounds after which the thirds of a run end.

    >>> ends(60)
    [20, 40, 60]
    """
    return [third * num_rounds // 3 for third in (1, 2, 3)]


def train_in_thirds(config: Config, workers: Sequence[int]) -> list[Entry]:
    """Trains each third with its number of workers; returns all entries."""
    history: list[Entry] = []
    with tempfile.TemporaryDirectory() as directory, Checkpoints(directory) as kept:
        for end, num_workers in zip(ends(config.num_rounds), workers, strict=True):
            now = dataclasses.replace(config, num_rounds=end, num_workers=num_workers)
            history = list(train(now, checkpoints=kept))
    return history


def measure(
    config: Config, seeds: Sequence[int], out: pathlib.Path, console: Console
) -> dict[str, list[Run]]:
    """Trains with all seeds, steadily and elastically."""
    runs: dict[str, list[Run]] = {name: [] for name in WORKERS}
    for seed in seeds:
        own = dataclasses.replace(config, seed=seed)
        for name, workers in WORKERS.items():
            file = out / f"{config.strategy}-{name}-seed{seed}.jsonl"
            with console.status(file.stem):
                write_records(file, own, train_in_thirds(own, workers))
            runs[name].append(read_records(file))
            jax.clear_caches()  # no other run uses these programs
    return runs


def table_of(config: Config, runs: dict[str, list[Run]], field: str) -> Table:
    """Shows a field of a record around the changes, and at the end."""
    first, second, last = ends(config.num_rounds)
    columns = [f"{', '.join(map(str, WORKERS[name]))} workers" for name in runs]
    rows = []
    for number in (first, first + 1, second, second + 1, last):
        of_seeds = [[_at(run, number, field) for run in own] for own in runs.values()]
        rows.append([str(number), *map(ranged, of_seeds)])
    title = f"{config.strategy}: {FIELDS[field]}"
    return make_table(["After round", *columns], rows, title)


def _at(run: Run, number: int, field: str) -> float:
    [record] = [record for record in run.records if record.round == number]
    return 100 * getattr(record, field)


def ranged(values: Sequence[float]) -> str:
    """Formats the mean of values and their range.

    >>> ranged([1.0, 2.0])
    '1.5 [1.0, 2.0]'
    """
    return f"{statistics.mean(values):.1f} [{min(values):.1f}, {max(values):.1f}]"


def main() -> None:
    parser = command_parser(__doc__)
    add = parser.add_argument
    out = pathlib.Path("out/elastic")
    add("--out", type=pathlib.Path, default=out, help="directory; %(default)s")
    add("--rounds", type=int, default=60, help="rounds per run; %(default)s")
    add("--seeds", type=int, nargs="+", default=range(5), help="random seeds; 0 to 4")
    strategies = ["overlap_local_sgd"]
    add("--strategies", nargs="+", choices=STRATEGIES, default=strategies)
    args = parser.parse_args()
    if args.rounds < 6:
        parser.error(f"--rounds must be at least 6, two a third, got {args.rounds}")
    jax.config.update("jax_platforms", "cpu")
    console = Console()
    for strategy in args.strategies:
        config = config_of(strategy, args.rounds)
        runs = measure(config, args.seeds, args.out, console)
        for field in FIELDS:
            console.print(table_of(config, runs, field))


if __name__ == "__main__":
    main()
