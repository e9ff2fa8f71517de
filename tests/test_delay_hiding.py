"""The sync period that hides a mean, and what a setting refuses."""

import dataclasses
import itertools

import pytest

from olsgd_jax import easgd, local_sgd, overlap_local_sgd, sync_sgd
from olsgd_jax.timing import (
    Constant,
    RandomPauses,
    Ring,
    Setting,
    ShiftedExponential,
    SlowWorker,
    Tree,
    closed_form,
    slowest_seconds,
    smallest_hiding_period,
)

OVERLAP = overlap_local_sgd(pullback=0.6)
SETTING = Setting(OVERLAP, 4, 1e9, 8, Constant(0.25), Ring(1e9, 1e-3))


@pytest.mark.parametrize("stream", [False, True])
def test_the_hiding_period_is_the_first_that_exposes_nothing(stream):
    sizes, workers, factors = (1e6, 1e8, 3e9), (1, 2, 9), (1.0, 2.5)
    for num_bytes, m, factor in itertools.product(sizes, workers, factors):
        setting = Setting(
            OVERLAP, 7, num_bytes, m, SlowWorker(0.1, factor), Ring(1e9, 1e-3), stream
        )
        # What a round takes beyond its own steps, of the slowest worker.
        exposed = [
            closed_form(dataclasses.replace(setting, sync_period=tau)).idle[0]
            for tau in range(1, 80)
        ]
        first = next(i for i, x in enumerate(exposed, 1) if x < 1e-9)
        assert smallest_hiding_period(setting) == first


def test_the_hiding_period_does_not_suffer_from_rounding():
    setting = Setting(OVERLAP, 1, 2.1, 2, Constant(0.7), Ring(1.0))
    assert 3 * 0.7 < 2.1
    assert smallest_hiding_period(setting) == 3


def test_what_cannot_be_hidden_has_no_period():
    # 14 messages of a millisecond: no piece is small enough for a step of 14.
    slow, fast = (
        dataclasses.replace(SETTING, compute=Constant(x), stream=True)
        for x in (0.014, 0.0141)
    )
    assert smallest_hiding_period(slow) is None
    assert smallest_hiding_period(fast) == 17_500  # 1.75 s in pieces of 0.1 ms
    for strategy in (local_sgd(), sync_sgd()):
        blocking = dataclasses.replace(SETTING, strategy=strategy)
        assert smallest_hiding_period(blocking) is None


def test_latency_alone_can_be_hidden_where_it_is_no_longer_than_a_step():
    piece = dataclasses.replace(SETTING, bytes_per_round=0, stream=True)
    assert smallest_hiding_period(piece) == 1
    short = dataclasses.replace(piece, compute=Constant(0.0139))
    assert smallest_hiding_period(short) is None


def test_chance_counts_by_its_mean():
    # A mean of 1.764 seconds, and steps of 0.2 that take 0.3 on average.
    for compute in (ShiftedExponential(0.2, 0.1), RandomPauses(0.2, 0.05, 2.0)):
        setting = dataclasses.replace(SETTING, compute=compute)
        assert smallest_hiding_period(setting) == 6


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sync_period": 0}, "sync_period must be at least 1, got 0"),
        ({"num_workers": 0}, "num_workers must be at least 1, got 0"),
        ({"bytes_per_round": -1.0}, r"bytes_per_round must be in \[0, inf\), got -1"),
        ({"strategy": local_sgd(), "stream": True}, "stream must be False under local"),
        ({"strategy": easgd(0.9, num_workers=4)}, "build it with num_workers=8"),
    ],
)
def test_what_does_not_go_together_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(SETTING, **change)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Ring(0.0), r"bandwidth must be in \(0, inf\), got 0.0"),
        (lambda: Tree(1.0, -1.0), r"latency must be in \[0, inf\), got -1.0"),
        (lambda: Ring(1.0).seconds(-1, 2), r"num_bytes must be in \[0, inf\)"),
        (lambda: Tree(1.0).seconds(1, 0), "num_workers must be at least 1, got 0"),
        (lambda: Constant(0.0), r"seconds must be in \(0, inf\), got 0.0"),
        (lambda: SlowWorker(1.0, 0.5), r"factor must be in \[1, inf\), got 0.5"),
        (lambda: ShiftedExponential(1.0, -1.0), r"extra must be in \[0, inf\)"),
        (lambda: RandomPauses(1.0, 1.1, 1.0), r"probability must be in \[0, 1\]"),
        (lambda: RandomPauses(1.0, 0.1, -1.0), r"pause must be in \[0, inf\)"),
        (lambda: slowest_seconds(Constant(1.0), 0, 1), "num_steps must be at least 1"),
        (lambda: slowest_seconds(Constant(1.0), 1, 0), "num_workers must be at least"),
    ],
)
def test_numbers_without_a_meaning_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()
