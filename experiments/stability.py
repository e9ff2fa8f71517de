"""Question: which learning rates does each strategy tolerate, and do runs agree?

Run:     python -m experiments.stability --train linear mlp
Cost:    half a minute, and 2 minutes for each model to train (2 busy CPU cores)
Answer:  at τ = 8, plain SGD tolerates γ h = 2 with every strategy. Nesterov momentum
         0.9 tolerates 1.36, but 0.066 with CoCoD-SGD, 0.056 with delayed DiLoCo and
         0.0099 with SlowMo. Of the six strategies without an outer optimizer, on a
         least-squares loss, all 12 runs at 0.9 times the limit converge, and all 12 at
         1.25 times diverge, at rates that the radius predicts within 3 %. An MLP at 4
         times its limit fails in 10 cases of 12; the other two have radii of 0.94 and
         1.004 there.

The table has the largest product γ h of learning rate and curvature up to which a round
is stable (`olsgd_jax.theory`), for every linear strategy with its default arguments,
behind plain SGD and behind Nesterov momentum. The last column is the radius of
differences between workers on a flat loss: at 1 they never heal. The figure shows the
larger radius over γ h. A strategy may be unstable in a band of γ h only.

With --train, four workers train on scikit-learn's digits, each on a batch of its own
that never changes, at multiples of the largest rate that is predicted to be stable for
the sharpest curvature of the initial model, which power iteration finds:

    linear    least squares: the curvature never changes, so the limit should be sharp
    mlp       cross-entropy: the curvature changes while the model trains
"""

import math
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from rich.console import Console

from experiments.cli.options import command_parser, count
from experiments.cli.table import make_table
from experiments.pages.drawing import save
from experiments.pages.figures import Line, draw_lines
from olsgd_jax import STRATEGIES, Strategy, init_state, make_round, plain_loss
from olsgd_jax.theory import Limits, round_radii, stable_curvature
from olsgd_jax.training import MLP, Config, build_strategy, load_dataset, writing
from olsgd_jax.types import ArrayTree

NUM_WORKERS = 4
MOMENTA = {"none": None, "Nesterov 0.9": 0.9}
HEADS = ("strategy", "local momentum", "consensus", "disagreement", "radius at 0")
TRAINED_HEADS = ("strategy", "local momentum", "rate, γ", "of the limit", "radius",
                 "growth", "last loss")  # fmt: skip
SWEPT = np.geomspace(1e-2, 3, 200)  # γ h in the figure
FACTORS = {"linear": (0.9, 1.25), "mlp": (0.5, 4.0)}  # of the largest stable rate
HIGHEST = 1.2  # radius in the figure
NUM_ROUNDS = {"linear": 2000, "mlp": 100}
LARGE = 1e9  # times the first loss: where a run ends


class Case(NamedTuple):
    """A strategy behind a local optimizer, and what is predicted of it."""

    name: str
    momentum: str
    strategy: Strategy
    limits: Limits  # of γ h

    def optimizer(self, rate: float) -> optax.GradientTransformation:
        return optax.sgd(rate, MOMENTA[self.momentum], nesterov=True)


class Problem(NamedTuple):
    """A model and its loss."""

    loss: Callable[[ArrayTree, tuple], jax.Array]
    params: ArrayTree
    batches: tuple  # a batch of each worker


class Trained(NamedTuple):
    """The result of one run."""

    loss: float  # the last mean loss
    growth: float | None  # of models per round, over the second half, if they diverge


def cases(sync_period: int) -> list[Case]:
    """Predicts the limits of all strategies."""
    found = []
    for name, named in STRATEGIES.items():
        strategy = build_strategy(Config(strategy=name, num_workers=NUM_WORKERS))
        for momentum in MOMENTA:
            case = Case(named.label, momentum, strategy, Limits(0, 0))
            limits = stable_curvature(
                strategy, case.optimizer(1.0), sync_period=sync_period
            )
            found.append(case._replace(limits=limits))
    return found


def radius_over_rates(case: Case, sync_period: int, rates: np.ndarray) -> np.ndarray:
    """Gives the larger of the two radii for every γ h."""
    radii = round_radii(
        case.strategy, case.optimizer(1.0), sync_period=sync_period, curvature=rates
    )
    return np.maximum(*radii)


def problems() -> dict[str, Problem]:
    """Sets up the models, and the examples of every worker."""
    data = load_dataset("digits")
    num = len(data.train_labels) // NUM_WORKERS
    inputs = data.train_inputs[: NUM_WORKERS * num].reshape(NUM_WORKERS, num, -1)
    labels = data.train_labels[: NUM_WORKERS * num].reshape(NUM_WORKERS, num)
    mlp = MLP(64, data.num_classes)

    def least_squares(weights: jax.Array, batch: tuple) -> jax.Array:
        x, label = batch
        error = x @ weights - jax.nn.one_hot(label, data.num_classes)
        return jnp.sum(error**2, axis=-1).mean() / 2

    def cross_entropy(params: ArrayTree, batch: tuple) -> jax.Array:
        x, label = batch
        logits = jnp.asarray(mlp.apply({"params": params}, x))
        return optax.softmax_cross_entropy_with_integer_labels(logits, label).mean()

    batches = jnp.asarray(inputs), jnp.asarray(labels)
    weights = jnp.zeros((inputs.shape[-1], data.num_classes))
    params = mlp.init(jax.random.key(0), batches[0][0, :1])["params"]
    return {
        "linear": Problem(least_squares, weights, batches),
        "mlp": Problem(cross_entropy, params, batches),
    }


def sharpest_curvature(problem: Problem, repetitions: int = 100) -> float:
    """Finds the largest eigenvalue of the Hessian, of all examples' mean loss."""
    batch = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), problem.batches)
    flat, as_params = ravel_pytree(problem.params)

    def gradient(flat: jax.Array) -> jax.Array:
        return ravel_pytree(jax.grad(problem.loss)(as_params(flat), batch))[0]

    @jax.jit
    def times_hessian(vector: jax.Array) -> jax.Array:
        return jax.jvp(gradient, (flat,), (vector,))[1]

    vector = jax.random.normal(jax.random.key(0), flat.shape)
    for _ in range(repetitions):
        vector = times_hessian(vector / jnp.linalg.norm(vector))
    return float(jnp.linalg.norm(vector))


def train(
    problem: Problem, case: Case, rate: float, sync_period: int, num_rounds: int
) -> Trained:
    """Trains until the last round, or until the loss is LARGE times the first."""
    optimizer = case.optimizer(rate)
    run_round = make_round(
        plain_loss(problem.loss), optimizer, case.strategy, sync_period=sync_period
    )
    state = init_state(
        problem.params, optimizer, case.strategy, num_workers=NUM_WORKERS
    )
    batches = jax.tree.map(
        lambda x: jnp.repeat(x[:, None], sync_period, axis=1), problem.batches
    )
    losses = []
    for _ in range(num_rounds):
        state, record = run_round(state, batches)
        losses.append(float(record.loss[:, 0].mean()))
        if not losses[-1] < LARGE * losses[0]:
            break
    growth, middle, last = None, len(losses) // 2, losses[-1]
    if not last < losses[0]:
        # A quadratic loss grows as the square of the models.
        growth = (last / losses[middle]) ** (0.5 / max(len(losses) - 1 - middle, 1))
    return Trained(last, growth)


def trained_rows(name: str, found: list[Case], sync_period: int) -> Iterator[list[str]]:
    """Trains every case at multiples of its largest stable rate."""
    problem = problems()[name]
    curvature = sharpest_curvature(problem)
    for case in found:
        for factor in FACTORS[name]:
            limit = factor * min(case.limits)
            [radius] = radius_over_rates(case, sync_period, np.array([limit]))
            rate = limit / curvature
            run = train(problem, case, rate, sync_period, NUM_ROUNDS[name])
            yield [
                case.name,
                case.momentum,
                f"{rate:.3g}",
                f"{factor:g}",
                f"{radius:.4f}",
                "" if run.growth is None else f"{run.growth:.4f}",
                f"{run.loss:.3g}",
            ]


def rows(found: list[Case], sync_period: int) -> Iterator[list[str]]:
    """Formats the limits; HEADS are the columns."""
    for case in found:
        flat = round_radii(
            case.strategy, case.optimizer(1.0), sync_period=sync_period, curvature=0.0
        )
        limits = ["any" if math.isinf(x) else f"{x:.3g}" for x in case.limits]
        yield [case.name, case.momentum, *limits, f"{flat.disagreement:.2f}"]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = command_parser(__doc__)
    add = parser.add_argument
    add(
        "--out",
        type=pathlib.Path,
        default=pathlib.Path("out/stability"),
        help="directory of the figure; %(default)s",
    )
    add(
        "--sync-period",
        type=count,
        default=8,
        help="local steps in a round, τ; %(default)s",
    )
    add("--train", nargs="+", choices=FACTORS, default=(), help="models to train")
    args = parser.parse_args(arguments)
    console = Console()
    found = cases(args.sync_period)
    title = f"Largest stable γ h, τ = {args.sync_period}"
    console.print(make_table(HEADS, rows(found, args.sync_period), title))
    lines = {}
    for look, case in enumerate(x for x in found if MOMENTA[x.momentum]):
        radius = radius_over_rates(case, args.sync_period, SWEPT).clip(max=HIGHEST)
        lines[case.name] = Line(SWEPT.tolist(), radius.tolist(), look)
    name_of_rate = "γ h, behind Nesterov momentum 0.9"
    figure = draw_lines(lines, name_of_rate, "radius", log_x=True)
    try:
        with writing(args.out):
            args.out.mkdir(parents=True, exist_ok=True)
            save(figure, args.out / "radius")
    except OSError as error:
        parser.error(str(error))
    for name in args.train:
        title = f"{name}: {NUM_ROUNDS[name]} rounds at multiples of the largest rate"
        trained = trained_rows(name, found, args.sync_period)
        console.print(make_table(TRAINED_HEADS, trained, title))


if __name__ == "__main__":
    main()
