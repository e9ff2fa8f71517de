"""Findings of the paper, held against runs."""

import pytest

from experiments.paper import findings
from experiments.paper.findings import FINDINGS
from tests.pages import run_of

OVERLAP = "overlap_local_sgd"
NON_IID = {"partition": "paper_non_iid"}


def rows_of(*runs):
    section = findings.section(runs)
    return section and [row[1:] for row in section.tables[0].rows]


def test_a_pair_is_held_against_the_papers():
    runs = run_of(OVERLAP, 8, 0.75), run_of("cocod_sgd", 8, 0.5)
    assert rows_of(*runs) == [["8", "holds", "75.00 / 50.00", "94.25 / 94.05"]]


def test_without_a_pair_there_is_nothing_to_say():
    assert rows_of(run_of(OVERLAP, 8, 0.75), run_of("cocod_sgd", 2, 0.5)) is None
    assert rows_of() is None


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [(0.8, "holds"), (0.71, "tie"), (0.69, "tie"), (0.6, "does not hold")],
)
def test_less_than_seeds_differ_is_a_tie(ours, verdict):
    others = [run_of("cocod_sgd", 8, x, seed=i) for i, x in enumerate((0.69, 0.71))]
    [row] = rows_of(run_of(OVERLAP, 8, ours), *others)
    assert row[1] == verdict


def test_what_diverged_is_below_all_else():
    lost = {**NON_IID, "outcome": "diverged"}
    stable, wild = (
        run_of(OVERLAP, 8, 0.1, **NON_IID),
        run_of("cocod_sgd", 8, 0.9, **lost),
    )
    assert rows_of(stable, wild) == [
        ["8", "holds", "10.00 / diverged", "91.45 / diverged"]
    ]
    both = run_of(OVERLAP, 8, 0.1, **lost), wild
    assert rows_of(*both)[0][1] == "tie"
    # One seed of two that diverged is enough.
    half = run_of("cocod_sgd", 8, 0.9, seed=1, **NON_IID)
    assert rows_of(stable, wild, half)[0][1] == "holds"


def test_data_are_told_apart():
    runs = run_of("sync_sgd", 8, 0.8), run_of("sync_sgd", 8, 0.6, **NON_IID)
    assert rows_of(*runs) == [["1", "holds", "80.00 / 60.00", "94.97 / 85.88"]]


def test_pullbacks_that_the_paper_did_not_choose_are_left_out():
    args = {"pullback": 0.2, "anchor_momentum": 0.7}
    runs = run_of(OVERLAP, 8, 0.9, strategy_args=args), run_of("cocod_sgd", 8, 0.5)
    assert rows_of(*runs) is None


def test_findings_are_those_of_the_paper():
    """In every pair the paper's first accuracy is the higher one."""
    for finding in FINDINGS:
        for first, second in finding.pairs:
            assert findings._paper(first) > findings._paper(second), finding.text
