"""Rounds as events in a heap, and local steps of given times."""

import heapq

import numpy as np


def play(steps, mean_seconds, delayed):
    """Plays workers and one network as events, and gives when all rounds are over.

    A mean asks for the network as soon as the last worker has started its round
    (delayed) or ended its steps, and has it to itself.
    """
    num_rounds, m = steps.shape
    events = [(0.0, "starts", 0, i) for i in range(m)]
    there = {(kind, r): 0 for kind in ("starts", "ends") for r in range(num_rounds)}
    queue, busy, arrived, waiting, now = [], False, set(), [], 0.0
    while events:
        now, kind, r, i = heapq.heappop(events)
        if kind == "arrives":
            busy = False
            arrived.add(r)
            ready = [other for other in waiting if other[0] == r]
            waiting = [other for other in waiting if other[0] != r]
        elif kind == "starts":
            heapq.heappush(events, (now + steps[r, i], "ends", r, i))
            ready = []
        else:
            ready = [(r, i)] if r in arrived else []
            waiting += [] if ready else [(r, i)]
        for last, worker in ready:
            if last + 1 < num_rounds:
                heapq.heappush(events, (now, "starts", last + 1, worker))
        if kind != "arrives":
            there[kind, r] += 1
            if kind == ("starts" if delayed else "ends") and there[kind, r] == m:
                queue.append(r)
        if queue and not busy:
            busy = True
            heapq.heappush(events, (now + mean_seconds, "arrives", queue.pop(0), -1))
    return now


class Recorded:
    """Local steps of given times, a row for each, all of them used once."""

    def __init__(self, times):
        self.times, self.rows = times, iter(times)

    def sample(self, rng, shape, num_steps=1):
        return np.reshape(sum(next(self.rows) for _ in range(num_steps)), shape)

    def means(self, num_workers):
        return self.times.mean(axis=0)
