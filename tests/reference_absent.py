"""Each algorithm with workers that miss rounds, as plain NumPy loops.

present[r] says who is in round r. Rows of X are the workers' models, flat. A loop
yields after every round what the workers have (X, and z, the anchor, None without
one), and the losses of the round's local steps, NaN of a worker that was absent.
"""

import numpy as np

from tests.reference import gram_schmidt, outer_nesterov


class Team:
    """Workers with an optimizer each, that counts the steps it has taken."""

    def __init__(self, problem, tau, make_optimizer):
        self.problem, self.tau, self.m = problem, tau, problem.num_workers
        self.optimizers = [make_optimizer() for _ in range(self.m)]
        self.steps = [0] * self.m

    def models(self):
        return self.problem.models()

    def loss(self, i, x, k):
        gap = x - self.problem.centres[i, k]
        return 0.5 * (self.problem.curvature * gap**2).sum()

    def grad(self, i, x, k):
        return self.problem.curvature * (x - self.problem.centres[i, k])

    def step(self, i, x, g):
        x = self.optimizers[i](x, g, self.steps[i])
        self.steps[i] += 1
        return x

    def steps_of(self, r):
        return range(r * self.tau, (r + 1) * self.tau)

    def local_steps(self, X, r, P):
        """Where the workers in P get to; the others stay."""
        Y, losses = X.copy(), np.full((self.m, self.tau), np.nan)
        for i in np.flatnonzero(P):
            for j, k in enumerate(self.steps_of(r)):
                losses[i, j] = self.loss(i, Y[i], k)
                Y[i] = self.step(i, Y[i], self.grad(i, Y[i], k))
        return Y, losses


def local_sgd(team, present):
    X = team.models()
    for r, P in enumerate(present):
        X, losses = team.local_steps(X, r, P)
        if P.any():
            X[P] = X[P].mean(axis=0)
        yield X, None, losses


def slowmo(team, present, beta, s, rate=lambda k: 1.0):
    x, v, k = team.problem.start, 0.0, 0
    for r, P in enumerate(present):
        Y, losses = team.local_steps(np.tile(x, (team.m, 1)), r, P)
        if P.any():
            k += team.tau
            v = beta * v + (x - Y[P].mean(axis=0)) / rate(k - 1)
            x = x - s * rate(k - 1) * v
        yield np.tile(x, (team.m, 1)), None, losses


def easgd(team, present, moving_rate):
    X, z = team.models(), team.problem.start
    a = moving_rate / team.m
    for r, P in enumerate(present):
        X, losses = team.local_steps(X, r, P)
        gaps = X[P] - z
        X[P] = X[P] - a * gaps
        z = z + a * gaps.sum(axis=0)
        yield X, z, losses


def cocod_sgd(team, present, mu=0.0, nu=1.0):
    X, previous = team.models(), team.problem.start
    for r, P in enumerate(present):
        Y, losses = team.local_steps(X, r, P)
        if P.any():
            mean = X[P].mean(axis=0)
            Y[P] = mean + mu * (mean - previous) + nu * (Y[P] - X[P])
            previous = mean
        X = Y
        yield X, None, losses


def diloco(team, present, rate, momentum):
    x, outer = team.problem.start, outer_nesterov(rate, momentum)
    for r, P in enumerate(present):
        Y, losses = team.local_steps(np.tile(x, (team.m, 1)), r, P)
        if P.any():
            x = outer(x, x - Y[P].mean(axis=0))
        yield np.tile(x, (team.m, 1)), None, losses


def delayed_diloco(team, present, rate, momentum):
    z, outer = team.problem.start, outer_nesterov(rate, momentum)
    D = np.zeros((team.m, len(z)))
    for r, P in enumerate(present):
        Y, losses = team.local_steps(np.tile(z, (team.m, 1)), r, P)
        progress = z - Y
        if P.any():
            z = outer(z, D[P].mean(axis=0))
        D[P] = progress[P]
        yield np.tile(z, (team.m, 1)), None, losses


def eager_diloco(team, present, rate, momentum):
    X = team.models()
    outers = [outer_nesterov(rate, momentum) for _ in X]
    D = np.zeros_like(X)
    for r, P in enumerate(present):
        Y, losses = team.local_steps(X, r, P)
        here, mean = np.flatnonzero(P), D[P].mean(axis=0) if P.any() else 0.0
        for i in here:
            g = mean + (X[i] - Y[i] - D[i]) / team.m
            D[i] = X[i] - Y[i]
            X[i] = outers[i](X[i], g)
        yield X.copy(), None, losses


def streaming_diloco(team, present, fragment_of, rate, momentum, alpha, delayed):
    X, z, turn = team.models(), team.problem.start.copy(), 0
    num_fragments = fragment_of.max() + 1
    outers = [outer_nesterov(rate, momentum) for _ in range(num_fragments)]
    for r, P in enumerate(present):
        Y, losses = team.local_steps(X, r, P)
        if P.any():
            own, known = fragment_of == turn, X if delayed else Y
            z[own] = outers[turn](z[own], (z - known)[P][:, own].mean(axis=0))
            Y[P] = np.where(own, Y[P] - alpha * (Y[P] - z), Y[P])
            turn = (turn + 1) % num_fragments
        X = Y
        yield X, z.copy(), losses


def overlap_local_sgd(team, present, alpha, beta, rate=lambda k: 1.0):
    X, z, v, k = team.models(), team.problem.start, 0.0, 0
    for r, P in enumerate(present):
        Y, losses = team.local_steps(X, r, P)
        if P.any():
            # The mean left with the round's first step, after k of them.
            v = beta * v + (X[P].mean(axis=0) - z) / rate(max(k - 1, 0))
            z = z + rate(max(k - 1, 0)) * v
            k += team.tau
        Y[P] = Y[P] - alpha * (Y[P] - z)
        X = Y
        yield X, z, losses


def sync_sgd(team, present):
    x = team.problem.start  # one model, and one optimizer: that of worker 0
    for r, P in enumerate(present):
        here, losses = np.flatnonzero(P), np.full((team.m, team.tau), np.nan)
        for j, k in enumerate(team.steps_of(r) if P.any() else ()):
            losses[P, j] = [team.loss(i, x, k) for i in here]
            grads = [team.grad(i, x, k) for i in here]
            x = team.step(0, x, np.mean(grads, axis=0))
        yield np.tile(x, (team.m, 1)), None, losses


def powersgd(team, present, shape, q):
    """The last rows × columns entries of a model are its one matrix."""
    rows, columns = shape
    x, E = team.problem.start, np.zeros((team.m, rows, columns))
    for r, P in enumerate(present):
        here, losses = np.flatnonzero(P), np.full((team.m, team.tau), np.nan)
        for j, k in enumerate(team.steps_of(r) if P.any() else ()):
            losses[P, j] = [team.loss(i, x, k) for i in here]
            G = np.array([team.grad(i, x, k) for i in here])
            vector = G[:, : -rows * columns].mean(axis=0)
            M = G[:, -rows * columns :].reshape(-1, rows, columns) + E[P]
            p = gram_schmidt((M @ q).mean(axis=0))
            Q = M.transpose(0, 2, 1) @ p
            E[P] = M - p @ Q.transpose(0, 2, 1)
            q = Q.mean(axis=0)
            x = team.step(0, x, np.concatenate([vector, (p @ q.T).ravel()]))
        yield np.tile(x, (team.m, 1)), None, losses
