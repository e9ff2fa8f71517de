"""A run that goes on with other workers: what it does, says, and how it goes back."""

import dataclasses
import itertools
import shutil
import sys

import jax
import numpy as np
import pytest

from experiments import elastic as experiment
from experiments.cli.progress import describe_change
from olsgd_jax.training import (
    Checkpoints,
    Config,
    Layout,
    Record,
    Resumed,
    Rollback,
    RollbackPolicy,
    read_records,
    train,
    write_records,
)
from olsgd_jax.training.components import build, build_optimizer, build_schedule
from olsgd_jax.training.records.types import kept_records
from olsgd_jax.training.recovery.elastic import resized
from tests.helpers import state_after

# An epoch is 1,440 examples, and 0.2 of one 288; a round of 4 workers has 128.
CONFIG = Config(
    width=8,
    sync_period=2,
    batch_size=16,
    evaluate_every=1,
    decay_epochs=(0.2,),
    mapping="vmap",
)
FOUR, TWO = Layout(4, "vmap", "16 x cpu", 1), Layout(2, "vmap", "16 x cpu", 1)


def config_of(num_rounds, num_workers, **options):
    return dataclasses.replace(
        CONFIG, num_rounds=num_rounds, num_workers=num_workers, **options
    )


def run(directory, *stages):
    """Goes on so many rounds in all with so many workers, and again; what happened."""
    entries = []
    for stage in stages:
        with Checkpoints(directory) as checkpoints:
            entries = list(train(config_of(*stage), checkpoints=checkpoints))
    return [x._replace(seconds=0) if isinstance(x, Record) else x for x in entries]


def bits_of(state):
    return [np.asarray(x).tobytes() for x in jax.tree.leaves(state._replace(key=()))]


def bits_in(directory, config):
    with Checkpoints(directory) as checkpoints:
        found = checkpoints.restore(build(config).init())
    assert found.number == config.num_rounds
    return bits_of(found.tree)


@pytest.fixture(scope="module")
def elastic(tmp_path_factory):
    """A run of 4, 2 and 4 workers, two rounds each, and its directory."""
    directory = tmp_path_factory.mktemp("elastic")
    return directory, run(directory, (2, 4), (4, 2), (6, 4))


def test_a_run_goes_from_4_to_2_to_4_workers_and_says_so(elastic):
    _, entries = elastic
    assert [x.round for x in entries] == [1, 2, 2, 3, 4, 4, 5, 6]
    changes = [x for x in entries if not isinstance(x, Record)]
    assert changes == [Resumed(2, FOUR, TWO), Resumed(4, TWO, FOUR)]
    assert entries[2] == changes[0]
    losses = [x.test_loss for x in entries if isinstance(x, Record)]
    assert losses[-1] < losses[0]


def test_examples_are_those_that_all_workers_had(elastic):
    examples = [x.examples for x in kept_records(elastic[1])]
    assert examples == [128, 256, 320, 384, 512, 640]


def test_the_learning_rate_goes_by_the_epochs_of_all_workers(elastic):
    # 4 workers have 256 examples behind them when 2 go on; those have 288 a step later.
    rates = [x.learning_rate for x in kept_records(elastic[1])]
    np.testing.assert_allclose(rates, [0.1, 0.1, 0.01, 0.01, 0.01, 0.01], rtol=1e-6)


def copy_of(directory, number, to):
    """A directory with one checkpoint of another."""
    shutil.copytree(directory / str(number), to / str(number))
    return to


def test_stopped_in_between_it_goes_on_to_the_same_bits(elastic, tmp_path):
    directory, entries = elastic
    stopped = copy_of(directory, 2, tmp_path / "stopped")
    assert run(stopped, (3, 2), (4, 2)) == entries[:5]
    whole = copy_of(directory, 4, tmp_path / "whole")
    assert bits_in(stopped, config_of(4, 2)) == bits_in(whole, config_of(4, 2))


def test_it_is_the_resized_state_with_the_batches_of_so_many_workers(elastic, tmp_path):
    first, second = config_of(2, 4), config_of(4, 2)
    four, two = build(first), build(second)
    # 4 steps of 4 workers had the examples of 8 steps of 2: 4 more than there were.
    optimizer = build_optimizer(second, build_schedule(second, 1440, ahead=4.0))
    two = two._replace(optimizer=optimizer)
    state = resized(state_after(first, four, four.init(), 0, 2), second, two)
    state = state_after(second, two, state, 2, 4)
    found = copy_of(elastic[0], 4, tmp_path / "found")
    assert bits_of(state) == bits_in(found, second)


def test_a_finished_run_gives_its_records_again_whoever_reads_them(elastic, tmp_path):
    directory, entries = elastic
    finished = copy_of(directory, 2, tmp_path)
    assert run(finished, (2, 2)) == entries[:2]


def diverging(checkpoints, num_rounds, num_workers):
    options = {"learning_rate": 4.0, "weight_decay": 1.0, "decay_epochs": ()}
    config = config_of(num_rounds, num_workers, evaluate_every=20, **options)
    return train(config, checkpoints=checkpoints, rollbacks=RollbackPolicy(scale=0.01))


@pytest.fixture(scope="module")
def doomed(tmp_path_factory):
    """Checkpoints of rounds 1 and 2 of a run that will diverge, with 4 workers."""
    directory = tmp_path_factory.mktemp("doomed")
    with Checkpoints(directory) as checkpoints:
        for num_rounds in (1, 2):
            list(diverging(checkpoints, num_rounds, 4))
    return directory


@pytest.mark.parametrize("saved", ["2", "1"])
def test_it_may_go_back_to_where_it_had_other_workers(saved, doomed, tmp_path):
    directory = shutil.copytree(doomed, tmp_path / "checkpoints")
    with Checkpoints(directory) as checkpoints:
        rest = diverging(checkpoints, 40, 2)
        entries = list(itertools.islice(rest, 3))  # those of before, and the change
        if saved == "1":  # as if the newest one were lost
            shutil.rmtree(directory / "2")
        entries += rest
    number = int(saved)
    back = next(x for x in entries if isinstance(x, Rollback))
    assert back.to == number
    after = entries[entries.index(back) + 1 :]
    # Undone with round 2, the change is made again after round 1.
    again = [Resumed(1, FOUR, TWO)] if saved == "1" else []
    assert [x for x in entries if isinstance(x, Resumed)] == [
        Resumed(2, FOUR, TWO),
        *again,
    ]
    assert after[: len(again)] == again
    write_records(tmp_path / "run.jsonl", CONFIG, entries)
    found = read_records(tmp_path / "run.jsonl")
    assert [x.round for x in found.records] == [*range(1, number + 1), 20, 40]
    assert found.resumes == [Resumed(number, FOUR, TWO)]
    assert found.records[-1].examples == 128 * number + 64 * (40 - number)


def test_a_change_that_is_no_change_of_layout_is_an_error(tmp_path):
    path = tmp_path / "run.jsonl"
    write_records(path, CONFIG, [Resumed(2, FOUR, TWO)])
    assert read_records(path).resumes == [Resumed(2, FOUR, TWO)]
    path.write_text(path.read_text().replace('"num_processes"', '"processes"'))
    with pytest.raises(ValueError, match="line 2: before must hold num_workers, map"):
        read_records(path)


def test_what_changed_is_said_in_words():
    after = Layout(8, None, "8 x cpu", 2)
    said = describe_change(FOUR, after)
    assert said == (
        "8 workers instead of 4, the mapping None instead of vmap, "
        "8 x cpu instead of 16 x cpu, 2 processes instead of 1"
    )


def test_the_experiment_compares_steady_and_elastic_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(experiment, "WORKERS", {"elastic": (4, 2, 4)})
    options = ["elastic", "--rounds", "6", "--seeds", "3", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", options)
    experiment.main()
    found = read_records(tmp_path / "overlap_local_sgd-elastic-seed3.jsonl")
    assert [x.round for x in found.resumes] == [2, 4]
    accuracies = [100 * x.test_accuracy for x in found.records]
    printed = capsys.readouterr().out
    for number in (2, 3, 4, 5, 6):
        assert f"│ {number} " in printed
        assert f" {experiment.ranged([accuracies[number - 1]])} " in printed


def test_an_experiment_without_a_round_after_each_change_is_refused(
    monkeypatch, capsys
):
    monkeypatch.setattr(sys, "argv", ["elastic", "--rounds", "5"])
    with pytest.raises(SystemExit):
        experiment.main()
    assert "--rounds must be at least 6, two a third, got 5" in capsys.readouterr().err
