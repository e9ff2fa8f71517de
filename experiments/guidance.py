"""Question: which strategy, sync period and rates should a new user begin with?

Run:     python -m experiments.guidance --data-dir DIRECTORY --out out/guidance
Cost:    about 25 processor seconds a run of the GPT, 2.4 of the digits, 69 runs each;
         stopped, it goes on where it was
Answer:  begin with CoCoD-SGD; with a pullback, divide the learning rate by the part of
         its steps that the consensus keeps (`progress_of`). A blocking warm-up lowers
         the loss with AdamW by 0.03 to 0.06 over 25 % of the steps (one seed), and does
         nothing that shows with SGD. Numbers are in docs/results/tuning.md, and
         --show --out results/guidance prints them

Four workers, which are lanes of one device, train with the optax face: a GPT of
characters on Tiny Shakespeare with AdamW, and scikit-learn's digits with SGD and
Nesterov momentum. All runs of a seed begin with the same model and see the same
examples in the same order. What is compared is the loss of the consensus on held-out
data after the same number of local steps.

A blocking warm-up averages gradients at every one of the first steps (`sync_sgd`), and
then hands params and optimizer state to the strategy.
"""

import json
import os
import pathlib
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, cast

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from rich.console import Console
from rich.table import Column, Table

from experiments.cli.options import command_parser, count
from experiments.cli.progress import make_progress
from olsgd_jax import (
    STRATEGIES,
    Strategy,
    consensus_of,
    distribute,
    overlap_jit,
    sync_sgd,
    to_workers,
)
from olsgd_jax.training import MLP, load_dataset

NUM_WORKERS, NUM_PARTS = 4, 20  # a run is evaluated at the end of each of its parts
CONTEXT, BATCH_SIZE = 64, {"gpt": 12, "digits": 32}
EARLY = 0.2  # of a run, for the table's column of early losses
SYNC_PERIODS = (1, 2, 4, 8)
RUNS = "runs.ndjson"  # JSON lines; a report takes *.jsonl for runs of `train`


class Case(NamedTuple):
    """One run: what is trained, and how its workers communicate."""

    task: str
    strategy: str
    learning_rate: float
    sync_period: int = 1
    pullback: float | None = None  # α
    anchor_momentum: float | None = None  # β
    warmup: float = 0.0  # part of all local steps that average gradients
    seed: int = 0


class Problem(NamedTuple):
    """What is minimised, with what optimizer, and how a model is judged."""

    init: Callable[[jax.Array], optax.Params]
    loss: Callable[[optax.Params, tuple], jax.Array]
    optimizer: Callable[[float, int], optax.GradientTransformation]
    examples: Callable[[np.ndarray], tuple]  # of random numbers in [0, 1)
    held_out: tuple


class Block(nn.Module):
    """Causal attention, then a layer for every character; both are added."""

    num_heads: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        width = x.shape[-1]
        mask = nn.make_causal_mask(x[..., 0])
        attention = nn.MultiHeadDotProductAttention(self.num_heads)
        x = x + attention(nn.LayerNorm()(x), mask=mask)
        hidden = nn.gelu(nn.Dense(4 * width)(nn.LayerNorm()(x)))
        return x + nn.Dense(width)(hidden)


class GPT(nn.Module):
    """A language model of characters."""

    num_characters: int
    width: int = 64
    depth: int = 2
    num_heads: int = 4

    @nn.compact
    def __call__(self, text: jax.Array) -> jax.Array:
        positions = nn.Embed(CONTEXT, self.width)(jnp.arange(text.shape[-1]))
        x = nn.Embed(self.num_characters, self.width)(text) + positions
        for _ in range(self.depth):
            x = Block(self.num_heads)(x)
        return nn.Dense(self.num_characters)(nn.LayerNorm()(x))


def read_text(data_dir: str | os.PathLike | None, split: str) -> bytes:
    """Reads a split of Tiny Shakespeare, prepared by TensorFlow Datasets."""
    root = data_dir or os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets"
    root = pathlib.Path(root).expanduser()
    if not (root / "tiny_shakespeare").is_dir():
        raise FileNotFoundError(
            f"data_dir must hold tiny_shakespeare, got {root}, which does not; set "
            "--data-dir or TFDS_DATA_DIR to a directory of TensorFlow Datasets that "
            "does, or leave it out with --tasks digits"
        )
    import tensorflow_datasets as tfds

    source = tfds.data_source(
        "tiny_shakespeare", split=split, data_dir=root, download=False
    )
    # It declares another type than it has.
    [example] = cast(Sequence[dict[str, bytes]], source)
    return example["text"]


def gpt(data_dir: str | os.PathLike | None, width: int = 64, depth: int = 2) -> Problem:
    """Sets up the language model, with AdamW."""
    train, test = (read_text(data_dir, split) for split in ("train", "validation"))
    characters = np.array(sorted(set(train + test)), np.uint8)
    codes = np.zeros(256, np.int32)
    codes[characters] = np.arange(len(characters), dtype=np.int32)
    train, test = (codes[np.frombuffer(text, np.uint8)] for text in (train, test))
    model = GPT(len(characters), width, depth)

    def windows(text: np.ndarray, begin: np.ndarray) -> tuple:
        rows = text[begin[..., None] + np.arange(CONTEXT + 1)]
        return rows[..., :-1], rows[..., 1:]

    def examples(numbers: np.ndarray) -> tuple:
        return windows(train, (numbers * (len(train) - CONTEXT)).astype(np.int64))

    def optimizer(rate: float, num_steps: int) -> optax.GradientTransformation:
        schedule = optax.warmup_cosine_decay_schedule(
            0.0, rate, num_steps // 10, num_steps, rate / 10
        )
        return optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule))

    held_out = windows(test, np.linspace(0, len(test) - CONTEXT - 1, 128).astype(int))
    return Problem(
        lambda key: model.init(key, held_out[0][:1])["params"],
        _cross_entropy(model.apply),
        optimizer,
        examples,
        held_out,
    )


def digits() -> Problem:
    """Sets up the demo's network and optimizer: SGD with Nesterov momentum."""
    data = load_dataset("digits")
    model = MLP(64, data.num_classes)

    def examples(numbers: np.ndarray) -> tuple:
        rows = (numbers * len(data.train_labels)).astype(np.int64)
        return data.train_inputs[rows], data.train_labels[rows]

    def optimizer(rate: float, num_steps: int) -> optax.GradientTransformation:
        del num_steps
        return optax.chain(
            optax.add_decayed_weights(1e-4),
            optax.sgd(rate, momentum=0.9, nesterov=True),
        )

    return Problem(
        lambda key: model.init(key, jnp.asarray(data.test_inputs[:1]))["params"],
        _cross_entropy(model.apply),
        optimizer,
        examples,
        (data.test_inputs, data.test_labels),
    )


def _cross_entropy(apply: Callable) -> Callable[[optax.Params, tuple], jax.Array]:
    def loss(params: optax.Params, batch: tuple) -> jax.Array:
        inputs, labels = batch
        logits = jnp.asarray(apply({"params": params}, inputs))
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    return loss


def strategy_of(case: Case) -> Strategy:
    """Builds the strategy of a run."""
    args = {"pullback": case.pullback, "anchor_momentum": case.anchor_momentum}
    given = {name: value for name, value in args.items() if value is not None}
    return STRATEGIES[case.strategy].build(**given)


def train(case: Case, problem: Problem, num_steps: int) -> Iterator[tuple[int, float]]:
    """Trains, and gives local steps and held-out loss at the end of every part."""
    steps = num_steps // NUM_PARTS  # of a part
    optimizer = problem.optimizer(case.learning_rate, num_steps)
    warm_tx = distribute(optimizer, sync_sgd(), sync_period=1)
    tx = distribute(optimizer, strategy_of(case), case.sync_period)
    params = problem.init(jax.random.key(case.seed))
    evaluate = jax.jit(problem.loss)
    rng = np.random.default_rng(case.seed)
    num_warm = round(case.warmup * NUM_PARTS)

    now = warm_tx if num_warm else tx
    run_part = overlap_jit(_steps(problem.loss, now))
    state = to_workers((params, now.init(params)), NUM_WORKERS)
    for part in range(NUM_PARTS):
        if num_warm and part == num_warm:
            state = hand_over(state, tx)
            run_part = overlap_jit(_steps(problem.loss, tx))
        numbers = rng.random((NUM_WORKERS, steps, BATCH_SIZE[case.task]))
        state = run_part(state, problem.examples(numbers))
        loss = evaluate(consensus_of(state[0]), problem.held_out)
        yield (part + 1) * steps, float(loss)


def hand_over(state: tuple, tx: optax.GradientTransformation) -> tuple:
    """Ends a warm-up: `tx` begins with the params and optimizer state that are there.

    Args:
      state: params and state of a `distribute` with `sync_sgd`, of all workers.
      tx: a `distribute` of the same optimizer with another strategy.
    """
    params, warm = state
    fresh = to_workers(tx.init(consensus_of(params)), NUM_WORKERS)
    return params, fresh._replace(opt_state=warm.opt_state)


def _steps(loss: Callable, tx: optax.GradientTransformation) -> Callable:
    """Makes many local steps of one worker."""

    def step(state: tuple, batch: tuple) -> tuple[tuple, None]:
        params, opt_state = state
        grads = jax.grad(loss)(params, batch)
        updates, opt_state = tx.update(grads, opt_state, params)
        return (optax.apply_updates(params, updates), opt_state), None

    return lambda state, batches: lax.scan(step, state, batches)[0]


OVERLAP = ((0.6, 0.7), (0.6, 0.0), (0.3, 0.0), (0.5, 0.5))


def cases(task: str, num_seeds: int, sync_periods: Sequence[int]) -> list[Case]:
    """Lists all runs of a task, the most telling ones first."""
    found = _cases_of(task, {"gpt": 1e-3, "digits": 0.1}[task], num_seeds)
    wanted = [
        case
        for case in found
        if case.strategy == "sync_sgd" or case.sync_period in sync_periods
    ]
    return list(dict.fromkeys(wanted))


def _cases_of(task: str, rate: float, num_seeds: int) -> list[Case]:
    sync = Case(task, "sync_sgd", rate)

    def others(tau: int) -> list[Case]:
        overlap = Case(task, "overlap_local_sgd", rate, tau)
        return [
            Case(task, "local_sgd", rate, tau),
            Case(task, "cocod_sgd", rate, tau),
            *(overlap._replace(pullback=a, anchor_momentum=b) for a, b in OVERLAP),
        ]

    delayed = others(4)[1:]
    warm = [
        case._replace(warmup=part)
        for case in delayed
        for part in (0.1, 0.25)
        if case.anchor_momentum != 0.5
    ]
    # Rates that make up for what a mix takes back (see `progress_of`), and more.
    rates = [
        case._replace(learning_rate=round(times * rate / progress_of(case), 6))
        for times in (1, 2, 4)
        for case in (sync, *others(4))
        if times == 1 or (case.pullback, case.anchor_momentum) not in OVERLAP[1::2]
    ]
    seeds = [
        case._replace(seed=seed)
        for seed in range(1, num_seeds)
        for case in (sync, *others(4), *rates)
        if case.learning_rate * progress_of(case) < 1.01 * rate
    ]
    first = [sync, *others(4), *rates, *warm, *seeds]
    return first + others(8) + others(1) + others(2)


def progress_of(case: Case) -> float:
    """Says how much of its local steps the consensus keeps, at a steady pace.

    With a pullback α the mean of the models moves by s a round where the local steps
    move it by u. All of x, z and v moving at that pace, v = s and

        s = (1 − α) u + α β s,    so s / u = (1 − α) / (1 − α β)

    >>> progress_of(Case("gpt", "cocod_sgd", 1e-3))
    1.0
    >>> progress_of(Case("gpt", "overlap_local_sgd", 1e-3, 4, 0.5, 0.0))
    0.5
    """
    a, b = case.pullback or 0.0, case.anchor_momentum or 0.0
    return (1 - a) / (1 - a * b)


def read_runs(file: pathlib.Path) -> list[dict]:
    """Reads what is kept of earlier runs; a last line that is cut off is no run."""
    if not file.exists():
        return []
    lines = file.read_text(encoding="utf-8").split("\n")[:-1]
    return [json.loads(line) for line in lines]


def run_all(
    todo: Iterable[Case],
    problems: dict[str, Problem],
    num_steps: int,
    file: pathlib.Path,
    console: Console,
) -> list[dict]:
    """Trains every case that `file` does not hold yet, and gives all of them."""
    file.parent.mkdir(parents=True, exist_ok=True)
    kept = read_runs(file)
    if file.exists() and not file.read_bytes().endswith(b"\n"):  # it was cut off
        whole = "".join(json.dumps(run) + "\n" for run in kept)
        file.write_text(whole, encoding="utf-8")
    done = {(Case(**run["case"]), run["num_steps"]): run for run in kept}
    runs, todo = [], list(todo)
    with make_progress(console) as progress, file.open("a", encoding="utf-8") as out:
        total = progress.add_task("runs", total=len(todo), shown="")
        for case in todo:
            run = done.get((case, num_steps))
            if run is None:
                task = progress.add_task(label(case), total=num_steps, shown="compiles")
                losses, begin = {}, time.perf_counter()
                for step, loss in train(case, problems[case.task], num_steps):
                    losses[step] = round(loss, 5)
                    shown = f"loss {loss:.3f}"
                    progress.update(task, completed=step, shown=shown)
                run = {
                    "case": case._asdict(),
                    "num_steps": num_steps,
                    "seconds": round(time.perf_counter() - begin, 1),
                    "losses": list(losses.items()),
                }
                out.write(json.dumps(run) + "\n")
                out.flush()
                progress.remove_task(task)
                jax.clear_caches()  # programs of another run are of no use
            runs.append(run)
            progress.advance(total)
    return runs


def label(case: Case) -> str:
    """Names the strategy of a run with its arguments.

    >>> label(Case("gpt", "overlap_local_sgd", 1e-3, 4, 0.6, 0.0))
    'overlap_local_sgd(0.6, 0)'
    """
    args = [x for x in (case.pullback, case.anchor_momentum) if x is not None]
    return case.strategy + (f"({', '.join(f'{x:g}' for x in args)})" if args else "")


def table(runs: Sequence[dict], title: str) -> Table:
    """Shows held-out losses of runs, those of all seeds in one row."""
    columns = [
        Column(head, justify="right")
        for head in ("τ", "warm-up", "rate", "early", "last", "least to most")
    ]
    shown = Table(Column("strategy", no_wrap=True), *columns, title=title)
    rows: dict[Case, list[dict]] = {}
    for run in runs:
        rows.setdefault(Case(**run["case"])._replace(seed=0), []).append(run)
    for case, seeds in rows.items():
        losses = [[loss for _, loss in run["losses"]] for run in seeds]
        early = statistics.mean(x[round(EARLY * len(x)) - 1] for x in losses)
        last = [x[-1] for x in losses]
        several = f"{min(last):.3f} to {max(last):.3f}" if len(last) > 1 else ""
        shown.add_row(
            label(case),
            str(case.sync_period),
            f"{case.warmup:.0%}" if case.warmup else "",
            f"{case.learning_rate:.3g}",
            f"{early:.3f}",
            f"{statistics.mean(last):.3f}",
            several,
        )
    return shown


def main() -> None:
    parser = command_parser(__doc__)
    add = parser.add_argument
    add(
        "--out",
        type=pathlib.Path,
        default=pathlib.Path("out/guidance"),
        help=f"directory; runs that its {RUNS} holds are not run again; %(default)s",
    )
    add(
        "--tasks",
        nargs="+",
        choices=list(BATCH_SIZE),
        default=list(BATCH_SIZE),
        help="what is trained; both",
    )
    add("--steps", type=count, default=320, help="local steps of a run; %(default)s")
    add("--seeds", type=count, default=3, help="of the most telling runs; %(default)s")
    add("--show", action="store_true", help="train nothing; show what OUT holds")
    add("--first", type=count, help="runs of each task, from the first; all")
    add(
        "--sync-periods",
        type=count,
        nargs="+",
        default=SYNC_PERIODS,
        help="local steps in a round of the runs that are made; 1 2 4 8",
    )
    add("--data-dir", help="of TensorFlow Datasets; TFDS_DATA_DIR")
    args = parser.parse_args()
    if args.steps % NUM_PARTS:
        parser.error(
            f"--steps must be a multiple of {NUM_PARTS}, got {args.steps}; a run is "
            f"evaluated {NUM_PARTS} times"
        )
    console = Console()
    title = "{}: held-out loss, " + f"{args.steps} local steps"
    if args.show:
        kept = read_runs(args.out / RUNS)
        kept = [run for run in kept if run["num_steps"] == args.steps]
        for task in args.tasks:
            runs = [run for run in kept if run["case"]["task"] == task]
            console.print(table(runs, title.format(task)))
        return
    makers = {"gpt": lambda: gpt(args.data_dir), "digits": digits}
    try:
        problems = {task: makers[task]() for task in args.tasks}
        for task in args.tasks:
            todo = cases(task, args.seeds, args.sync_periods)[: args.first]
            runs = run_all(todo, problems, args.steps, args.out / RUNS, console)
            console.print(table(runs, title.format(task)))
    except OSError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
