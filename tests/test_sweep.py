"""Sweeps: nothing is run twice, and what was stopped is run again."""

import argparse
import dataclasses
import io
import subprocess
import sys

import pytest
from rich.console import Console

from experiments import alpha_sweep, tables, tradeoff
from experiments.paper import runs, sweep
from experiments.paper.published import ACCURACY, SYNC_PERIODS
from olsgd_jax.training import Config, Run, read_records

SMALL = Config(width=4, num_rounds=2, batch_size=4, evaluate_every=1, mapping="vmap")


@pytest.fixture
def trained(monkeypatch):
    """The seeds of the runs that were trained, in their order."""
    seeds, train = [], runs.train

    def watched(config, components):
        seeds.append(config.seed)
        return train(config, components)

    monkeypatch.setattr(runs, "train", watched)
    return seeds


def run_all(configs, out):
    return runs.run_all(configs, out, Console(file=io.StringIO()))


def test_finished_runs_are_not_repeated_and_stopped_ones_are(tmp_path, trained):
    configs = [dataclasses.replace(SMALL, seed=i) for i in range(3)]
    first = run_all(configs, tmp_path)
    names = [runs.name_of(config) for config in configs]
    assert list(first) == names
    assert trained == [0, 1, 2]
    # The second run lost its last line, as if it had been stopped; the third is cut.
    for name, cut in ((names[1], '{"outcome"'), (names[2], '"spread"')):
        path = tmp_path / f"{name}.jsonl"
        text = path.read_text()
        path.write_text(text[: text.rindex(cut)])
    again = run_all(configs, tmp_path)
    assert trained == [0, 1, 2, 1, 2]
    for name in names:
        assert again[name].outcome == "finished"
        assert [x.tests for x in again[name].records] == [
            x.tests for x in first[name].records
        ]


def test_data_sets_are_read_before_the_bars_are_drawn(tmp_path, monkeypatch):
    order = []
    for name in ("load_dataset", "make_progress"):
        real = getattr(runs, name)

        def noted(*args, name=name, real=real):
            order.append(name)
            return real(*args)

        monkeypatch.setattr(runs, name, noted)
    run_all([SMALL, dataclasses.replace(SMALL, seed=1)], tmp_path)
    assert order == ["load_dataset", "make_progress"]


def test_a_run_that_diverges_is_a_result_and_is_not_repeated(tmp_path, trained):
    wild = dataclasses.replace(SMALL, learning_rate=1e30)
    for _ in range(2):
        [run] = run_all([wild], tmp_path).values()
        assert run.outcome == "diverged"
    assert trained == [0]


def test_a_file_of_another_run_is_an_error(tmp_path):
    run_all([SMALL], tmp_path)
    other = dataclasses.replace(SMALL, width=5)
    with pytest.raises(
        ValueError, match=r"seed0.jsonl must .* has width=4, not 5; del"
    ):
        run_all([other], tmp_path)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({}, "iid-overlap_local_sgd-tau4-seed0"),
        ({"seed": 2, "sync_period": 8}, "iid-overlap_local_sgd-tau8-seed2"),
        ({"strategy": "sync_sgd", "reduction": "low_rank", "partition": "even",
          "reduction_args": {"rank": 3}}, "even-sync_sgd-low_rank-rank3-tau4-seed0"),
        ({"strategy_args": {"pullback": 0.2, "anchor_momentum": 0.7}},
         "iid-overlap_local_sgd-pullback0.2-tau4-seed0"),
    ],
)  # fmt: skip
def test_a_run_is_named_after_what_it_is_of(options, name):
    assert runs.name_of(Config(**options)) == name


def test_sweeps_share_runs():
    args = sweep.sweep_parser(None, (1, 8)).parse_args([])
    own = {"seeds": 2, "all_seeds": True, "ranks": (1,), "pullbacks": (0.2, 0.6)}
    args = argparse.Namespace(**vars(args), **own)
    ours, *others = (
        {runs.name_of(config): config for config in sweeps.runs(args)}
        for sweeps in (tables, tradeoff, alpha_sweep)
    )
    for other, shared in zip(others, (3, 1), strict=True):
        both = ours.keys() & other.keys()
        assert len(both) == shared
        assert all(ours[name] == other[name] for name in both)


@pytest.fixture(scope="module")
def smallest_tables(tmp_path_factory):
    """Both tables, of runs of two rounds."""
    out = tmp_path_factory.mktemp("tables")
    options = "--dataset digits --model mlp --width 4 --no-augment --batch-size 4"
    options += " --num-rounds 2 --mapping vmap --sync-periods 2 --seeds 2"
    command = [sys.executable, "-m", "experiments.tables", "--out", str(out)]
    subprocess.run([*command, *options.split()], check=True, capture_output=True)
    return out


def test_the_tables_run_from_end_to_end(smallest_tables):
    files = smallest_tables.glob("*.jsonl")
    found = {path.stem: read_records(path) for path in files}
    # 3 strategies and synchronous SGD on 2 kinds of data; 2 delayed ones twice
    assert len(found) == 2 * 4 + 2 * 2
    assert {run.outcome for run in found.values()} == {"finished"}
    text = (smallest_tables / "tables.md").read_text()
    skewed, even = "paper_non_iid-cocod_sgd-tau2", "iid-cocod_sgd-tau2"
    accuracies = [
        100 * found[f"{skewed}-seed{seed}"].records[-1].test_accuracy for seed in (0, 1)
    ]
    mean = f"{sum(accuracies) / 2:.2f}"
    ours = f"{mean} [{min(accuracies):.2f}, {max(accuracies):.2f}]"
    assert f"| CoCoD-SGD | {ours} (91.67) |" in text
    histograms = [found[f"{name}-seed0"].facts["histogram"] for name in (skewed, even)]
    most_skewed, most_even = (max(map(max, x)) for x in histograms)
    assert most_skewed > 2 * most_even


def run_with(accuracy, outcome="finished"):
    class Last:
        test_accuracy = accuracy

    return Run({}, None, {}, None, "", [Last()], [], outcome)


@pytest.mark.parametrize(
    ("seeds", "expected"),
    [
        ([], "—"),
        ([run_with(0.5)], "50.00"),
        ([run_with(0.5), run_with(0.25)], "37.50 [25.00, 50.00]"),
        ([run_with(0.1, "diverged")], "diverged"),
        ([run_with(0.5), run_with(0.1, "diverged")], "50.00, 1 of 2 diverged"),
    ],
)
def test_a_cell_is_mean_and_range_and_says_what_diverged(seeds, expected):
    assert tables.accuracy_of(seeds) == expected


def test_the_papers_numbers_are_all_there():
    for rows in ACCURACY.values():
        assert rows.keys() == set(tables.COMPARED)
        assert all(len(row) == len(SYNC_PERIODS) for row in rows.values())
