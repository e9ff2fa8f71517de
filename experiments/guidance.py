"""Question: which strategy, sync period and rates should a new user begin with?

Run:     python -m experiments.guidance --data-dir DIRECTORY --out out/guidance
Cost:    about 25 processor seconds for a run of the GPT and 2.4 for one of the digits,
         69 runs each; if stopped, it continues
Answer:  begin with CoCoD-SGD; with a pullback, divide the learning rate by the fraction
         of its steps that the consensus keeps (`Case.progress`). A blocking warm-up
         over 25 % of the steps lowers the loss with AdamW by 0.03 to 0.06 (one seed),
         and has no visible effect with SGD. Numbers are in docs/results/tuning.md, and
         --show --out results/guidance prints them

Four workers, which are lanes of one device, train with the optax face: a GPT on the
characters of Tiny Shakespeare with AdamW, and scikit-learn's digits with SGD and
Nesterov momentum. All runs with the same seed start from the same model and see the
same examples in the same order. The table compares the loss of the consensus on
held-out data after the same number of local steps.
"""

import pathlib
import statistics
import time
from collections.abc import Sequence

import jax
from rich.console import Console
from rich.table import Table

from experiments.cli.options import command_parser, count
from experiments.cli.table import make_table
from experiments.measured.measure_all import measure_all, read_kept
from experiments.tuning.cases import RATES, Case, list_cases
from experiments.tuning.problems import Problem, digits, gpt
from experiments.tuning.training import NUM_PARTS, train

EARLY = 0.2  # fraction of a run after which the table shows the early loss
SYNC_PERIODS = (1, 2, 4, 8)
RUNS = "runs.ndjson"  # JSON lines; a report takes *.jsonl for runs of `train`
HEADS = ("strategy", "τ", "warm-up", "rate", "early", "last", "least to most")


def measure(case: Case, problem: Problem) -> dict:
    """Trains one case."""
    began = time.perf_counter()
    losses = [(step, round(loss, 5)) for step, loss in train(case, problem)]
    jax.clear_caches()  # no other run uses these programs
    return {"seconds": round(time.perf_counter() - began, 1), "losses": losses}


def table(runs: Sequence[dict], title: str) -> Table:
    """Shows held-out losses of runs, with all seeds of a case in one row."""
    seeds: dict[Case, list[list[float]]] = {}
    for run in runs:
        case = Case(*(run[field] for field in Case._fields))._replace(seed=0)
        seeds.setdefault(case, []).append([loss for _, loss in run["losses"]])
    rows = []
    for case, losses in seeds.items():
        last = [x[-1] for x in losses]
        early = statistics.mean(x[round(EARLY * len(x)) - 1] for x in losses)
        rows.append(
            [
                case.name,
                f"{case.sync_period}",
                f"{case.warmup:.0%}" if case.warmup else "",
                f"{case.learning_rate:.3g}",
                f"{early:.3f}",
                f"{statistics.mean(last):.3f}",
                f"{min(last):.3f} to {max(last):.3f}" if len(last) > 1 else "",
            ]
        )
    return make_table(HEADS, rows, title)


def main() -> None:
    parser = command_parser(__doc__)
    add = parser.add_argument
    add(
        "--out",
        type=pathlib.Path,
        default=pathlib.Path("out/guidance"),
        help=f"directory; runs in its {RUNS} are not repeated; %(default)s",
    )
    add(
        "--tasks",
        nargs="+",
        choices=list(RATES),
        default=list(RATES),
        help="what to train; default: both",
    )
    add("--steps", type=count, default=320, help="local steps per run; %(default)s")
    add("--seeds", type=count, default=3, help="seeds of the main runs; %(default)s")
    add("--show", action="store_true", help="train nothing; show the runs in OUT")
    add("--first", type=count, help="number of runs per task; default: all")
    add(
        "--sync-periods",
        type=count,
        nargs="+",
        default=SYNC_PERIODS,
        help="sync periods τ to run; 1 2 4 8",
    )
    add("--data-dir", help="TensorFlow Datasets directory; default: TFDS_DATA_DIR")
    args = parser.parse_args()
    if args.steps % NUM_PARTS:
        parser.error(
            f"--steps must be a multiple of {NUM_PARTS}, got {args.steps}; a run is "
            f"evaluated {NUM_PARTS} times"
        )
    console, file = Console(), args.out / RUNS
    makers = {"gpt": lambda: gpt(args.data_dir), "digits": digits}
    try:
        problems = {task: makers[task]() for task in args.tasks if not args.show}
    except OSError as error:
        parser.error(str(error))
    for task, problem in problems.items():
        cases = list_cases(task, args.seeds, args.sync_periods)[: args.first]
        cases = [case._replace(num_steps=args.steps) for case in cases]
        measure_all(cases, lambda case, x=problem: measure(case, x), file, console)
    kept = [run for run in read_kept(file) if run["num_steps"] == args.steps]
    for task in args.tasks:
        runs = [run for run in kept if run["task"] == task]
        console.print(table(runs, f"{task}: held-out loss, {args.steps} local steps"))


if __name__ == "__main__":
    main()
