"""Workers that are slowed down: how, what it costs, and what the model says of it."""

import json
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import stragglers
from experiments.links.hosts import why_not
from experiments.links.slowdowns import SLOWDOWNS
from experiments.measured import straggler_tables
from experiments.measured.straggler_numbers import numbers_of
from experiments.measured.straggler_rounds import loss
from olsgd_jax.timing import slowest_seconds

REASON = why_not()
needs_hosts = pytest.mark.skipif(REASON is not None, reason=str(REASON))

OPTIONS = ["--hosts", "2", "--rate", "1gbit", "--sync-period", "2"]
OPTIONS += ["--num-rounds", "3", "--repetitions", "2", "--unit", "0.005"]
OPTIONS += ["--width", "32", "--strategies", "local_sgd", "overlap_local_sgd"]


def record_of(slowdown, rounds, mean=0.1):
    """Four rounds of two steps on two hosts, twice; a step sleeps for 1 s."""
    own = {
        # Beside its sleep, a step takes 0.25 s.
        "without": [10.0, 10.0],
        "drawn": [8.0, 8.0],
        "mean": [mean, mean],
    }
    return {
        "slowdown": slowdown,
        "strategies": list(rounds),
        "sync_period": 2,
        "num_rounds": 4,
        "unit": 1.0,
        "rate": "200mbit",
        "machine": "some, 2 cores",
        "samples": [
            {label: {**own, "with": x} for label, x in rounds.items()},
            {label: {**own, "with": [0.0, 0.0]} for label in rounds},  # never last
        ],
    }


@pytest.mark.parametrize(
    ("slowdown", "means"),
    [
        ("none", [2.0, 2.0, 2.0, 2.0]),
        ("slow_worker", [2.3, 2.0, 2.0, 2.0]),
        ("random", [2.075, 2.075, 2.075, 2.075]),  # 0.3 at one step in four
        ("exponential", [2.3, 2.3, 2.3, 2.3]),
        ("pauses", [2.1, 2.1, 2.1, 2.1]),  # 5 after one step in 50
    ],
)
def test_slowdowns_are_given_in_units(slowdown, means):
    compute = SLOWDOWNS[slowdown](2.0, 1.0, 4)
    np.testing.assert_allclose(compute.means(4), means)


def test_a_step_sleeps_as_long_as_it_is_told():
    params = [jnp.eye(8)]
    step = jax.jit(jax.value_and_grad(loss, has_aux=True))

    def seconds(sleep):
        batch = {"inputs": jnp.ones((4, 8)), "seconds": jnp.float64(sleep)}
        began = time.perf_counter()
        (value, _), grads = jax.block_until_ready(
            step(params, {}, batch, jax.random.key(0))
        )
        taken = time.perf_counter() - began
        assert jnp.isfinite(value)
        assert jnp.abs(grads[0]).max() > 0
        return taken

    seconds(0)  # compiles
    assert seconds(0) < 0.25 < 0.3 <= seconds(0.3)


def test_numbers_are_medians_and_of_the_last_host():
    record = record_of("none", {"local_sgd": [12.0, 14.0]})
    numbers = numbers_of(record, "local_sgd")
    assert numbers.step == 1.25
    assert numbers.mean == 0.1
    assert numbers.round == 13 / 4
    assert numbers.idle == 13 / 4 - 10 / 4
    assert numbers.modelled.seconds == pytest.approx(2 * 1.25 + 0.1)


def test_the_model_takes_the_slowdown_and_the_mean():
    rounds = {"sync_sgd": [1.0, 1.0], "local_sgd": [1.0, 1.0], "cocod_sgd": [1.0, 1.0]}
    record = record_of("random", rounds, mean=0.5)
    compute = SLOWDOWNS["random"](1.25, 1.0, 2)
    blocking = numbers_of(record, "local_sgd").modelled.seconds
    assert blocking == pytest.approx(slowest_seconds(compute, 2, 2) + 0.5)
    every_step = numbers_of(record, "sync_sgd").modelled.seconds
    assert every_step == pytest.approx(2 * (slowest_seconds(compute, 1, 2) + 0.5))
    delayed = numbers_of(record, "cocod_sgd").modelled.seconds
    assert 2 * compute.means(2)[0] < delayed < blocking - 0.5


def test_a_table_holds_what_was_measured_beside_the_model():
    records = [record_of(x, {"local_sgd": [10.4, 10.4]}) for x in ("none", "pauses")]
    [table] = straggler_tables.section(records).tables
    assert table.title == "Local SGD: 2 hosts, 200 Mbit/s, τ = 2, some, 2 cores"
    first = ["nothing", "1250.0", "100", "2600", "2600", "+0.0%", "100", "100"]
    assert table.rows[0] == first
    assert table.rows[1][0] == "pauses of 5 steps after one step in 50"
    assert straggler_tables.section([]) is None


@needs_hosts
def test_stragglers_are_measured_on_hosts_once(tmp_path, monkeypatch, capsys):
    def run(*slowdowns):
        options = [*OPTIONS, "--slowdowns", *slowdowns, "--out", str(tmp_path)]
        monkeypatch.setattr(sys, "argv", ["stragglers", *options])
        stragglers.main()
        lines = (tmp_path / "stragglers.jsonl").read_text().splitlines()
        return [json.loads(x) for x in lines]

    [record] = run("slow_worker")
    slow, fast = (own["overlap_local_sgd"] for own in record["samples"])
    # 3 rounds of 2 steps; the first worker takes 1.3 times as long.
    assert slow["drawn"] == pytest.approx([1.3 * 0.03] * 2)
    assert fast["drawn"] == pytest.approx([0.03] * 2)
    assert min(slow["without"]) > 1.3 * 0.03
    assert {len(x) for own in (slow, fast) for x in own.values()} == {2}
    assert (
        "one worker, 30 % slower at every step"
        in (tmp_path / "stragglers.md").read_text()
    )
    monkeypatch.setattr(stragglers, "ask_all", lambda *question: record["samples"])
    again = run("slow_worker", "none")
    assert [x["slowdown"] for x in again] == ["slow_worker", "none"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--slowdowns", "snow"], "slowdown must be one of none, slow_worker"),
        (["--strategies", "sgd"], "strategy must be one of"),
        (["--rate", "fast"], "rate must be a whole number"),
        (["--num-rounds", "0"], "num_rounds must be at least 1"),
    ],
)
@needs_hosts
def test_what_cannot_be_measured_is_refused(options, message, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["stragglers", *options])
    with pytest.raises(SystemExit):
        stragglers.main()
    assert message in capsys.readouterr().err
