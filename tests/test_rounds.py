"""The loop between rounds: what waits, what goes on, and how deep the round lies."""

import dataclasses
import pathlib
import traceback

import jax
import numpy as np
import pytest

import olsgd_jax
from olsgd_jax.training import Checkpoints, Config, Due, loop, train
from olsgd_jax.training.components import build

CONFIG = Config(
    width=4,
    num_workers=2,
    sync_period=2,
    batch_size=4,
    num_rounds=3,
    evaluate_every=3,
)
ROOT = pathlib.Path(olsgd_jax.__file__).parent


@pytest.fixture
def saved(monkeypatch, tmp_path):
    """Trains with a checkpoint due after some rounds; gives what is saved."""

    def run(due, events, config=CONFIG):
        found = []

        def save(checkpoints, config, state, progress):
            events.append(f"save {progress.round}")
            params = jax.tree.map(np.asarray, state.params)
            found.append((progress.round, params, progress.last_loss))

        components = build(config)

        def batches(number):
            events.append(f"batches {number}")
            return components.batches(number)

        monkeypatch.setattr(loop, "save", save)
        own = components._replace(batches=batches)
        with Checkpoints(tmp_path / "new") as checkpoints:
            list(train(config, own, checkpoints=checkpoints, due=due))
        return found

    return run


def test_a_stop_that_lets_rounds_go_on_has_the_state_of_its_round(saved):
    # With a record of every round, each stop waits for its round.
    waiting = saved(Due(every=1), [], dataclasses.replace(CONFIG, evaluate_every=1))
    going_on = saved(Due(every=1), [])
    assert [x[0] for x in going_on] == [x[0] for x in waiting] == [1, 2, 3]
    for ours, theirs in zip(going_on, waiting, strict=True):
        jax.tree.map(np.testing.assert_array_equal, ours, theirs)


class Noted(Due):
    """Is due after one round, and notes from when on it counts."""

    def __init__(self, number):
        self.number, self.restarts = number, []

    def __call__(self, number):
        return number == self.number

    def restart(self, number):
        self.restarts.append(number)


def test_the_next_round_is_under_way_at_such_a_stop(saved, monkeypatch):
    events = []

    def watched(*args, **kwargs):
        overlap_round = make_round(*args, **kwargs)

        def run(state, batches):
            events.append("round")
            return overlap_round(state, batches)

        return run

    make_round = loop.make_round
    monkeypatch.setattr(loop, "make_round", watched)
    saved(Noted(1), events)
    begin = events.index("batches 0")
    assert events[begin:] == [
        *("batches 0", "round", "batches 1", "round", "save 1"),
        *("batches 2", "round", "save 3"),
    ]


def test_the_clock_of_checkpoints_starts_again_with_each_of_them(saved):
    due = Noted(1)
    saved(due, [])
    assert due.restarts == [0, 1, 3]


def test_a_round_s_collective_is_six_calls_below_the_loop(monkeypatch):
    depths, psum = [], jax.lax.psum

    def watched(*args, **kwargs):
        files = [pathlib.Path(x.filename) for x in traceback.extract_stack()]
        own = [x.relative_to(ROOT).as_posix() for x in files if ROOT in x.parents]
        below = own[own.index("training/loop.py") + 1 :]
        if below[0] != "training/describe.py":
            depths.append(len(below))
        return psum(*args, **kwargs)

    records = train(dataclasses.replace(CONFIG, mapping="shard_map", num_rounds=1))
    monkeypatch.setattr(jax.lax, "psum", watched)
    monkeypatch.setattr(loop, "make_record", lambda *args: args)
    next(records)
    assert depths
    assert max(depths) <= 6
