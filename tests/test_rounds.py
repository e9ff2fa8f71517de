"""Rounds that stop, and rounds that go on while something is done with a copy."""

import jax
import numpy as np

from olsgd_jax.training import Config, rounds
from olsgd_jax.training.components import build

CONFIG = Config(width=4, num_workers=2, sync_period=2, batch_size=4, num_rounds=3)


def stops_of(pauses, events):
    """Runs, notes what happens in which order, and gives round, params and losses."""
    components = build(CONFIG)

    def batches(number):
        events.append(f"batches {number}")
        return components.batches(number)

    own = components._replace(batches=batches)
    stops = rounds.run_rounds(
        CONFIG, own, own.init(), 0, lambda number: pauses[number - 1]
    )
    for stop in stops:
        events.append(f"stop {stop.round}")
        params = jax.tree.map(np.asarray, stop.state.params)
        yield stop.round, params, [x.tolist() for x in stop.losses]


def test_a_stop_that_lets_rounds_go_on_has_the_state_of_its_round():
    waiting = list(stops_of(["wait", "wait", "wait"], []))
    going_on = list(stops_of(["go_on", "go_on", "wait"], []))
    assert [x[0] for x in going_on] == [x[0] for x in waiting] == [1, 2, 3]
    for ours, theirs in zip(going_on, waiting, strict=True):
        jax.tree.map(np.testing.assert_array_equal, ours, theirs)


def test_the_next_round_is_under_way_at_such_a_stop(monkeypatch):
    events = []

    def watched(*args, **kwargs):
        overlap_round = make_round(*args, **kwargs)

        def run(state, batches):
            events.append("round")
            return overlap_round(state, batches)

        return run

    make_round = rounds.make_round
    monkeypatch.setattr(rounds, "make_round", watched)
    list(stops_of(["go_on", "none", "wait"], events))
    begin = events.index("batches 0")
    assert events[begin:] == [
        *("batches 0", "round", "batches 1", "round", "stop 1"),
        *("batches 2", "round", "stop 3"),
    ]
