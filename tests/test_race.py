"""Contenders on hosts with shaped links, raced to an accuracy."""

import json
import sys

import jax
import pytest

from experiments import race
from experiments.links.gloo import ring_bytes
from experiments.links.hosts import UNSHAPED, why_not
from experiments.measured import race_runs, race_tables
from experiments.measured.race_contenders import Setting, config_of, parse, title_of
from experiments.measured.race_records import RUNS, read_all
from olsgd_jax.training import Config

REASON = why_not()
needs_hosts = pytest.mark.skipif(REASON is not None, reason=str(REASON))

CONTENDER = "overlap_local_sgd-tau4-int8"
OPTIONS = ["--dataset", "digits", "--width", "256", "--learning-rates", "0.05"]
OPTIONS += ["--evaluate-steps", "8", "--limit", "30", "--rates", "1gbit"]
SETTING = Setting("digits", width=16, seed=0, evaluate_steps=8)


def run(out, *more):
    options = [*OPTIONS, "--contenders", CONTENDER, "--out", str(out), *more]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["race", *options])
        # This process has its devices already.
        patch.setattr(race, "use_cpu_devices", lambda number: None)
        race.main()


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """A directory of a contender and the yardstick, raced on two hosts."""
    out = tmp_path_factory.mktemp("race")
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        run(out, "--target", "0.8")
    return out


@needs_hosts
def test_the_contender_and_the_yardstick_reach_the_target(out):
    runs = {(x["contender"], x["rate"]): x for x in read_all(out, RUNS)}
    assert runs.keys() == {("sync_sgd", UNSHAPED), (CONTENDER, "1gbit")}
    for record in runs.values():
        points = record["points"]
        assert record["outcome"] == "reached"
        assert points[-1]["accuracy"] >= 0.8 > points[-2]["accuracy"]
        assert [x["step"] for x in points] == [8 * (i + 1) for i in range(len(points))]
        assert 0 < record["seconds_per_round_alone"] < points[-1]["seconds"]
        assert {"machine", "versions", "commit", "search", "limit"} < record.keys()
        assert Config(**record["config"]).learning_rate == 0.05


@needs_hosts
def test_the_bytes_of_a_run_are_those_of_its_rounds_alone(out):
    [record] = read_all(out, "run-*sync_sgd.json")
    # Every one of 8 steps in a round averages a gradient of four arrays.
    sizes = 64 * 256, 256, 256 * 10, 10
    assert record["payload_bytes_per_round"] == 8 * 4 * sum(sizes)
    # And what keeps connections alive. Evaluations send models too, which do not count.
    frames = 8 * sum(ring_bytes(4 * size, 2) for size in sizes)
    assert record["sent_bytes_per_round"] == pytest.approx(frames, rel=0.1)


@needs_hosts
def test_a_page_and_a_figure_show_the_race(out):
    text = (out / "race.md").read_text()
    assert "| Fully synchronous SGD, infinitely fast network | 0.05 |" in text
    assert "| Overlap Local-SGD, τ = 4, int8 | 0.05 |" in text
    assert (out / "race-2-hosts-1-gbit-s.svg").exists()


@needs_hosts
def test_finished_runs_are_not_run_again(out, monkeypatch):
    before = [x.read_bytes() for x in sorted(out.glob("*.json"))]
    monkeypatch.delattr(race, "ask_all")
    monkeypatch.delattr(race, "search")
    run(out, "--target", "0.8")
    assert [x.read_bytes() for x in sorted(out.glob("*.json"))] == before


@needs_hosts
def test_a_record_of_another_target_is_refused(out, capsys):
    with pytest.raises(SystemExit):
        run(out, "--target", "0.7")
    assert "target=0.8, not 0.7; delete it" in capsys.readouterr().err


def test_a_contender_is_named_after_what_it_runs():
    config = config_of("sync_sgd-low_rank-rank3", 4, SETTING, 0.2)
    assert (config.strategy, config.reduction) == ("sync_sgd", "low_rank")
    assert config.reduction_args["rank"] == 3
    assert (config.sync_period, config.evaluate_every, config.num_workers) == (8, 1, 4)
    config = parse("cocod_sgd-tau24-int4")
    assert (config.strategy, config.sync_period) == ("cocod_sgd", 24)
    assert config.reduction == "int4"
    assert title_of("overlap_local_sgd-pullback0.5-tau8") == (
        "Overlap Local-SGD, pullback 0.5, τ = 8"
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("sgd-tau8", "strategy of a contender must be one of"),
        ("local_sgd-often", "must be a strategy and, after dashes"),
        ("local_sgd", "must have a whole sync period, as in local_sgd-tau8"),
        ("local_sgd-tau2.5", "must have a whole sync period"),
        ("local_sgd-tau0", "sync_period must be at least 1"),
        ("sync_sgd-tau8", "unless it averages at every step"),
        ("local_sgd-tau8-int8-int4", "at most one reduction"),
        ("local_sgd-rank2-tau8", "strategy_args must fit local_sgd"),
    ],
)
def test_contenders_are_checked_before_any_is_run(name, message):
    with pytest.raises(ValueError, match=message):
        race.list_runs([2], ["1gbit"], [name], SETTING, 0.5, 10)


def test_a_rate_that_diverges_is_not_chosen():
    config = config_of("local_sgd-tau4", 2, SETTING, 1.0)
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        found = race_runs.search(config, [0.1, 1e20])
    assert found["1e+20"] is None
    assert race_runs.best_rate(found) == 0.1
    assert race_runs.best_rate({"0.2": 0.7, "0.1": 0.7, "0.4": 0.6}) == 0.1
    with pytest.raises(ValueError, match="one that does not diverge"):
        race_runs.best_rate({"3": None})


def record_of(contender, rate, accuracies, seconds, outcome="reached"):
    """A run of 100 ms a round alone, with an evaluation after every round."""
    config = config_of(contender, 2, SETTING, 0.1)
    tau = config.sync_period
    points = [
        {"round": i, "step": tau * i, "seconds": seconds * i, "accuracy": x}
        for i, x in enumerate(accuracies, start=1)
    ]
    return {
        "contender": contender,
        "num_hosts": 2,
        "rate": rate,
        "target": 0.5,
        "outcome": outcome,
        "config": {
            "sync_period": tau,
            "learning_rate": 0.1,
            "dataset": "digits",
            "batch_size": 32,
            "seed": 0,
        },
        "points": points,
        "num_parameters": 10,
        "sent_bytes_per_round": 2e6,
        "seconds_per_round_alone": 0.1,
        "machine": "some",
    }


def test_the_table_gives_times_of_the_infinitely_fast_network():
    runs = [
        record_of("sync_sgd", "unshaped", [0.3, 0.4, 0.6], seconds=0.2),
        record_of("sync_sgd", "1gbit", [0.3, 0.4], seconds=1, outcome="cut off"),
        record_of("local_sgd-tau4", "1gbit", [0.45, 0.55], seconds=0.4),
        record_of("cocod_sgd-tau4", "1gbit", [0.5], seconds=0.3),
    ]
    section = race_tables.section(json.loads(json.dumps(runs)))
    [table] = section.tables
    # Synchronous SGD is half way between its second and third round of 8 steps.
    assert [row[1:] for row in table.rows] == [
        ["0.1", "12.5", "12.5", "0.2", "0.2", "1.00", "20", "—"],
        ["0.1", "25.0", "12.5", "0.5", "0.5", "2.00", "20", "5"],
        ["0.1", "75.0", "25.0", "0.3", "0.3", "1.20", "4", "2"],
        ["0.1", "100.0", "25.0", "0.4", "0.6", "2.40", "6", "3"],
        ["0.1", "125.0", "12.5", "—", "cut off at 2 with 40.0%", "—", "16", "4"],
    ]
    assert all(len(row) == len(table.heads) for row in table.rows)
    names = [row[0] for row in table.rows]
    assert names[0].endswith("infinitely fast network")
    assert names[1].endswith("links not shaped")
    figure = section.pictures[0].figure
    assert len(figure.axes[0].lines) == 4
