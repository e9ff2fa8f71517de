"""Each algorithm as plain NumPy loops, straight from its paper.

Rows of X are the workers' models, flat. A loop yields (X, z) after every local step k:
the models that step k + 1 starts from, and the anchor that workers were last pulled to
(None without one).
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np


class Problem:
    """Worker i at step k minimises ½ (x − c[i, k])ᵀ diag(h) (x − c[i, k])."""

    def __init__(self, num_workers, num_steps, optimizer, size, seed=0):
        rng = np.random.default_rng(seed)
        self.curvature = rng.uniform(0.5, 2.0, size)
        self.start = rng.normal(size=size)
        self.centres = rng.normal(size=(num_workers, num_steps, size))
        self.num_workers, self.num_steps = num_workers, num_steps
        self.optimizer = optimizer

    def models(self):
        return np.tile(self.start, (self.num_workers, 1))

    def losses(self, X, k):
        return 0.5 * ((X - self.centres[:, k]) ** 2 * self.curvature).sum(axis=1)

    def grads(self, X, k):
        return self.curvature * (X - self.centres[:, k])

    def local_step(self, X, k):
        return self.optimizer(X, self.grads(X, k), k)


def sgd(rate):
    return lambda X, G, k: X - rate(k) * G


def nesterov(rate, momentum, weight_decay):
    trace = 0.0

    def step(X, G, k):
        nonlocal trace
        G = G + weight_decay * X
        trace = momentum * trace + G
        return X - rate(k) * (G + momentum * trace)

    return step


def adamw(rate, weight_decay, b1=0.9, b2=0.999, eps=1e-8):
    mu = nu = 0.0

    def step(X, G, k):
        nonlocal mu, nu
        mu = b1 * mu + (1 - b1) * G
        nu = b2 * nu + (1 - b2) * G**2
        mu_hat, nu_hat = mu / (1 - b1 ** (k + 1)), nu / (1 - b2 ** (k + 1))
        return X - rate(k) * (mu_hat / (np.sqrt(nu_hat) + eps) + weight_decay * X)

    return step


def sync_sgd(problem, tau):
    X = problem.models()
    for k in range(problem.num_steps):
        G = np.tile(problem.grads(X, k).mean(axis=0), (problem.num_workers, 1))
        X = problem.optimizer(X, G, k)
        yield X, None


def local_sgd(problem, tau):
    X = problem.models()
    for k in range(problem.num_steps):
        X = problem.local_step(X, k)
        if (k + 1) % tau == 0:
            X = np.tile(X.mean(axis=0), (problem.num_workers, 1))
        yield X, None


def slowmo(problem, tau, beta, s, rate=lambda k: 1.0):
    X = problem.models()
    x, v = X[0], 0.0
    for k in range(problem.num_steps):
        X = problem.local_step(X, k)
        if (k + 1) % tau == 0:
            progress = x - X.mean(axis=0)
            if rate(k) == 0:  # the limit of s rate(k) v
                v = beta * v
                x = x - s * progress
            else:
                v = beta * v + progress / rate(k)
                x = x - s * rate(k) * v
            X = np.tile(x, (problem.num_workers, 1))
        yield X, None


def easgd(problem, tau, moving_rate):
    X, z = problem.models(), problem.start
    a = moving_rate / problem.num_workers
    for k in range(problem.num_steps):
        X = problem.local_step(X, k)
        if (k + 1) % tau == 0:
            X, z = X - a * (X - z), z + a * (X - z).sum(axis=0)
        yield X, z


def cocod_sgd(problem, tau, mu=0.0, nu=1.0):
    X = start = problem.models()
    previous = problem.start
    for k in range(problem.num_steps):
        X = problem.local_step(X, k)
        if (k + 1) % tau == 0:
            mean = start.mean(axis=0)
            X = start = mean + mu * (mean - previous) + nu * (X - start)
            previous = mean
        yield X, None


def outer_nesterov(rate, momentum):
    velocity = 0.0

    def step(x, g):
        nonlocal velocity
        velocity = momentum * velocity + g
        return x - rate * (g + momentum * velocity)

    return step


def diloco(problem, tau, rate, momentum):
    X, outer = problem.models(), outer_nesterov(rate, momentum)
    x = X[0]
    for k in range(problem.num_steps):
        X = problem.local_step(X, k)
        if (k + 1) % tau == 0:
            x = outer(x, x - X.mean(axis=0))
            X = np.tile(x, (problem.num_workers, 1))
        yield X, None


def delayed_diloco(problem, tau, rate, momentum):
    X, outer = problem.models(), outer_nesterov(rate, momentum)
    z, before = X[0], np.zeros_like(X)
    for k in range(problem.num_steps):
        X = problem.local_step(X, k)
        if (k + 1) % tau == 0:
            progress = z - X
            z, before = outer(z, before.mean(axis=0)), progress
            X = np.tile(z, (problem.num_workers, 1))
        yield X, None


def eager_diloco(problem, tau, rate, momentum):
    X, outer = problem.models(), outer_nesterov(rate, momentum)
    start, before = X, np.zeros_like(X)
    for k in range(problem.num_steps):
        X = problem.local_step(X, k)
        if (k + 1) % tau == 0:
            progress = start - X
            G = before.mean(axis=0) + (progress - before) / problem.num_workers
            X = start = outer(start, G)
            before = progress
        yield X, None


def streaming_diloco(problem, tau, fragment_of, rate, momentum, alpha, delayed):
    """Number j of a model is in fragment fragment_of[j]."""
    X = start = problem.models()
    num_fragments = fragment_of.max() + 1
    outer = [outer_nesterov(rate, momentum) for _ in range(num_fragments)]
    z = problem.start.copy()
    for k in range(problem.num_steps):
        X = problem.local_step(X, k)
        if (k + 1) % tau == 0:
            turn = k // tau % num_fragments
            own = fragment_of == turn
            known = start if delayed else X
            z[own] = outer[turn](z[own], (z - known)[:, own].mean(axis=0))
            X = np.where(own, X - alpha * (X - z), X)
            start = X
        yield X, z.copy()


def overlap_local_sgd(problem, tau, alpha, beta, rate=lambda k: 1.0):
    X, z, v = problem.models(), problem.start, 0.0
    pulled_to = z
    for k in range(problem.num_steps):
        X = problem.local_step(X, k)
        if (k + 1) % tau == 0:
            X, pulled_to = X - alpha * (X - z), z
            if rate(k) == 0:  # the limit of rate(k) v
                v = beta * v
                z = X.mean(axis=0)
            else:
                v = beta * v + (X.mean(axis=0) - z) / rate(k)
                z = z + rate(k) * v
        yield X, pulled_to


def powersgd(problem, tau, rank, shape, q):
    """The last rows × columns entries of a model are its one matrix."""
    rows, columns = shape
    X, E = problem.models(), np.zeros((problem.num_workers, rows, columns))
    for k in range(problem.num_steps):
        G = problem.grads(X, k)
        vector = G[:, : -rows * columns].mean(axis=0)
        M = G[:, -rows * columns :].reshape(-1, rows, columns) + E
        p = gram_schmidt((M @ q).mean(axis=0))
        Q = M.transpose(0, 2, 1) @ p
        E = M - p @ Q.transpose(0, 2, 1)
        q = Q.mean(axis=0)
        reduced = np.concatenate([vector, (p @ q.T).ravel()])
        X = problem.optimizer(X, np.tile(reduced, (problem.num_workers, 1)), k)
        yield X, None


def gram_schmidt(p):
    basis = np.zeros_like(p)
    for j in range(p.shape[1]):
        column = p[:, j]
        for _ in range(2):  # once more, against rounding
            column = column - basis[:, :j] @ (basis[:, :j].T @ column)
        basis[:, j] = column / np.linalg.norm(column)
    return basis


class Case(NamedTuple):
    """A loop with its arguments, and what the library has to be given to follow it."""

    loop: Callable
    arguments: dict
    strategy: str  # its name in the library
    strategy_args: dict  # of the library
    is_rated: bool = False  # whether both keep the velocity divided by the rate
    reduction: str = "exact"  # its name in the library
    reduction_args: dict | None = None  # of the library


CASES = {
    "sync_sgd": Case(sync_sgd, {}, "sync_sgd", {}),
    "local_sgd": Case(local_sgd, {}, "local_sgd", {}),
    "easgd": Case(easgd, {"moving_rate": 0.9}, "easgd", {"moving_rate": 0.9}),
    "cocod_sgd": Case(cocod_sgd, {}, "cocod_sgd", {}),
    "cocod_momentum": Case(
        cocod_sgd, {"mu": 0.7, "nu": 0.3}, "cocod_sgd", {"momentum": 0.7}
    ),
    "cocod_step_size": Case(
        cocod_sgd,
        {"mu": 0.5, "nu": 1.2},
        "cocod_sgd",
        {"momentum": 0.5, "step_size": 1.2},
    ),
    "overlap": Case(
        overlap_local_sgd,
        {"alpha": 0.6, "beta": 0.0},
        "overlap_local_sgd",
        {"pullback": 0.6},
    ),
    # Its shape and its first Q come from the library.
    "powersgd": Case(
        powersgd,
        {"rank": 2},
        "sync_sgd",
        {},
        reduction="low_rank",
        reduction_args={"rank": 2},
    ),
}
OUTER = {"outer_learning_rate": 0.6, "outer_momentum": 0.5}
for _name in ("diloco", "delayed_diloco", "eager_diloco"):
    CASES[_name] = Case(globals()[_name], {"rate": 0.6, "momentum": 0.5}, _name, OUTER)
# The cut into fragments comes from the library too.
for _name, _alpha, _delayed in (
    ("streaming", 0.4, True),
    ("streaming_ends", 1.0, False),
):
    CASES[_name] = Case(
        streaming_diloco,
        {"rate": 0.6, "momentum": 0.5, "alpha": _alpha, "delayed": _delayed},
        "streaming_diloco",
        {"num_fragments": 3, "pullback": _alpha, "delayed": int(_delayed), **OUTER},
    )
for _ending, _is_rated in (("", False), ("_scaled", True)):
    CASES[f"slowmo{_ending}"] = Case(
        slowmo,
        {"beta": 0.6, "s": 0.9},
        "slowmo",
        {"momentum": 0.6, "step_size": 0.9},
        _is_rated,
    )
    CASES[f"overlap{_ending or '_momentum'}"] = Case(
        overlap_local_sgd,
        {"alpha": 0.6, "beta": 0.7},
        "overlap_local_sgd",
        {"pullback": 0.6, "anchor_momentum": 0.7},
        _is_rated,
    )
