"""A run that diverged goes on from where it was well, slower, and says so."""

import argparse
import dataclasses
import subprocess
import sys

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.cli.diverging import rollbacks_of
from olsgd_jax import model_of
from olsgd_jax.training import (
    Checkpoints,
    Config,
    Due,
    Evaluation,
    PreemptedError,
    Record,
    Rollback,
    RollbackPolicy,
    read_records,
    train,
    write_records,
)
from olsgd_jax.training.components import build
from olsgd_jax.training.records.measure import make_record
from olsgd_jax.training.recovery.divergence import check_state_finite
from olsgd_jax.training.recovery.resume import Progress
from olsgd_jax.training.recovery.rollback import at_current_rate, restarted
from tests.helpers import state_after

# Weight decay makes a step x ← (1 − γ) x − γ g. At γ = 4 every step grows, until
# numbers overflow; momentum makes it faster.
CONFIG = Config(
    width=8,
    num_workers=2,
    sync_period=2,
    batch_size=8,
    num_rounds=60,
    evaluate_every=10,
    learning_rate=4.0,
    weight_decay=1.0,
    mapping="vmap",
)
SLOWER = RollbackPolicy(scale=0.01)


class Once(Due):
    """Says that it is time after one round only."""

    def __init__(self, number):
        super().__init__()
        self.number = number

    def __call__(self, number):
        return number == self.number


def without_seconds(rows):
    return [x if isinstance(x, Rollback) else x._replace(seconds=0.0) for x in rows]


def run(directory, **options):
    with Checkpoints(directory) as checkpoints:
        rows = train(
            CONFIG, checkpoints=checkpoints, due=Once(2), rollbacks=SLOWER, **options
        )
        return without_seconds(rows)


def final_bits(directory):
    with Checkpoints(directory) as checkpoints:
        found = checkpoints.restore(build(CONFIG).init())
    assert found.number == CONFIG.num_rounds
    leaves = jax.tree.leaves(found.tree._replace(key=()))
    return [np.asarray(x).tobytes() for x in leaves]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that goes back once, and its directory."""
    directory = tmp_path_factory.mktemp("whole")
    return directory, run(directory)


def test_a_run_that_diverged_goes_on_from_its_checkpoint(whole):
    _, rows = whole
    [rollback] = [x for x in rows if isinstance(x, Rollback)]
    place = rows.index(rollback)
    assert 2 < rollback.round < 60
    assert rollback[1:] == (2, 0.04)
    before, after = rows[:place], rows[place + 1 :]
    assert [x.round for x in after] == [10, 20, 30, 40, 50, 60]
    np.testing.assert_allclose([x.learning_rate for x in before], 4)
    np.testing.assert_allclose([x.learning_rate for x in after], 0.04)
    assert after[-1].test_loss < 3  # a model that knows nothing has log 10


def test_it_goes_on_to_the_same_bits_when_it_is_stopped_after_that(whole, tmp_path):
    directory, rows = whole
    undone = sum(isinstance(x, Record) and x.learning_rate > 1 for x in rows)
    answers = iter([False] * (10 * undone + 30) + [True] * 100)
    with pytest.raises(PreemptedError):
        run(tmp_path, preempted=lambda: next(answers))
    with Checkpoints(tmp_path) as checkpoints:
        found = checkpoints.restore(build(CONFIG).init())
        assert any("rollback" in row for row in found.facts["records"])
        with pytest.raises(ValueError, match="rollbacks must be given to resume a run"):
            train(CONFIG, checkpoints=checkpoints)
    assert run(tmp_path) == rows
    assert final_bits(tmp_path) == final_bits(directory)


@pytest.mark.parametrize("rated_velocity", [False, True])
def test_without_a_checkpoint_it_is_the_run_with_the_lower_rate(rated_velocity):
    config = dataclasses.replace(CONFIG, rated_velocity=rated_velocity)
    rows = without_seconds(train(config, rollbacks=SLOWER))
    [rollback] = [x for x in rows if isinstance(x, Rollback)]
    assert rollback.to == 0
    lower = dataclasses.replace(config, learning_rate=0.04)
    after = rows[rows.index(rollback) + 1 :]
    assert after == without_seconds(train(lower))


def test_the_strategy_divides_by_the_rate_that_the_run_has_come_down_to():
    config = dataclasses.replace(
        CONFIG,
        strategy="slowmo",
        strategy_args={"momentum": 0.5},
        rated_velocity=True,
    )
    progress = Progress(records=(Rollback(3, 0, 0.25),))
    now, own = at_current_rate(config, build(config), progress)
    assert now.learning_rate == 0.25
    start, mean = jnp.array(3.0), jnp.array(1.0)
    _, state = own.strategy.mix(start, start, mean, own.strategy.init(start))
    assert state.velocity == (3 - 1) / 0.25


def test_it_goes_back_as_often_as_it_may():
    # Nothing can be learned at such rates: the first round ends it every time.
    config = dataclasses.replace(CONFIG, learning_rate=1e30)
    rows = train(config, rollbacks=RollbackPolicy(times=2))
    assert [next(rows) for _ in range(2)] == [
        Rollback(1, 0, 5e29),
        Rollback(1, 0, 2.5e29),
    ]
    with pytest.raises(FloatingPointError, match=r"learning_rate below 2.5e\+29"):
        next(rows)


@pytest.mark.parametrize(
    ("strategy", "which"),
    [("overlap_local_sgd", "anchor"), ("slowmo", "consensus")],
)
def test_workers_restart_from_one_model_with_the_schedule_where_it_was(
    strategy, which, mesh
):
    config = dataclasses.replace(
        CONFIG,
        strategy=strategy,
        strategy_args=None,
        num_workers=4,
        num_rounds=2,
        learning_rate=0.01,
        rated_velocity=True,
        mapping="vmap" if mesh is None else "shard_map",
        reduction="int8",
    )
    components = build(config)
    before = state_after(config, components, components.init(), 0, 2)
    model, _ = model_of(before, components.strategy, which, components.mesh)
    state = restarted(before, config, components)
    for worker in range(4):
        own = jax.tree.map(lambda x, i=worker: x[i], state.params)
        chex.assert_trees_all_equal(jax.device_get(own), jax.device_get(model))
    assert state.round.tolist() == [2] * 4
    assert (jax.random.key_data(state.key) == jax.random.key_data(before.key)).all()
    for fresh, old in zip(
        jax.tree.leaves(state.opt_state),
        jax.tree.leaves(before.opt_state),
        strict=True,
    ):
        is_count = jnp.issubdtype(old.dtype, jnp.integer)
        assert fresh.tolist() == ([4] * 4 if is_count else jnp.zeros_like(old).tolist())
    assert not any(x.any() for x in jax.tree.leaves(state.strategy_state.velocity))
    unsent = [jax.tree.leaves(x.reduction_state.models.own) for x in (before, state)]
    assert [any(x.any() for x in leaves) for leaves in unsent] == [True, False]
    reference, _ = state.reduction_state.models.reference
    chex.assert_trees_all_equal(reference, state.params)
    assert state.strategy_state.num_steps.tolist() == [4] * 4


@pytest.mark.parametrize("part", ["params", "opt_state", "strategy_state"])
def test_a_state_that_is_not_finite_is_named_with_its_worker(part):
    components = build(CONFIG)
    state = components.init()
    ruined = jax.tree.map(
        lambda x: x.at[1].set(jnp.inf) if jnp.issubdtype(x.dtype, jnp.floating) else x,
        getattr(state, part),
    )
    message = f"{part} must stay finite, got nan or inf in round 7 of .*, worker 1; "
    with pytest.raises(FloatingPointError, match=message + ".* was 0.5;"):
        check_state_finite(
            state._replace(**{part: ruined}), 7, CONFIG, 0.5, components.mesh
        )


def test_workers_too_far_apart_have_diverged():
    components = build(CONFIG)
    state = components.init()
    far = jax.tree.map(lambda x: x.at[0].add(1e25).at[1].add(-1e25), state.params)
    progress = Progress(round=1, losses=(1.0,), last_loss=1.0)
    with pytest.raises(FloatingPointError, match="spread must stay finite, got inf"):
        make_record(CONFIG, components, state._replace(params=far), progress, 0.0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scale": 1.0}, r"scale must be in \(0, 1\), got 1.0"),
        ({"times": -1}, r"times must be in \[0, inf\), got -1"),
    ],
)
def test_what_cannot_be_a_rollback_is_an_error(options, message):
    with pytest.raises(ValueError, match=message):
        RollbackPolicy(**options)


def record(number):
    return Record(number, number, 8, 0.1, 1.0, {"x": Evaluation(1.0, 0.5)}, 0, 0, 0.1)


def test_records_that_were_undone_stay_in_the_file_but_are_not_read(tmp_path):
    path, rollback = tmp_path / "run.jsonl", Rollback(35, 20, 0.05)
    later = [record(number)._replace(seconds=9.0) for number in (30, 40)]
    rows = [record(10), record(20), record(30), rollback, *later]
    write_records(path, CONFIG, rows)
    assert len(path.read_text().splitlines()) == 8
    found = read_records(path)
    assert found.records == [record(10), record(20), *later]
    assert found.rollbacks == [rollback]
    path.write_text(path.read_text().replace('"to": 20', '"from": 20'))
    with pytest.raises(ValueError, match="line 5: rollback must hold round, to, lear"):
        read_records(path)


TRAIN = [sys.executable, "-m", "experiments.train", "--width", "4", "--batch-size", "4"]
TRAIN += ["--num-workers", "2", "--num-rounds", "60", "--evaluate-every", "30"]
TRAIN += ["--learning-rate", "4", "--weight-decay", "1", "--on-divergence"]


def command(out, *options):
    done = subprocess.run(
        [*TRAIN, *options, "--out", str(out)], capture_output=True, text=True
    )
    return done, " ".join(done.stdout.split())


def test_a_run_may_diverge_as_a_result(tmp_path):
    done, said = command(tmp_path, "record")
    assert done.returncode == 0, done.stderr
    assert "must stay finite" in said
    assert read_records(tmp_path / "run.jsonl").outcome == "diverged"
    assert (tmp_path / "report.html").exists()


def test_a_run_may_go_back(tmp_path):
    done, said = command(tmp_path, "rollback", "--rollback-scale", "0.01")
    assert done.returncode == 0, done.stderr
    assert "back to round 0, with a learning rate of 0.04" in said
    found = read_records(tmp_path / "run.jsonl")
    assert found.outcome == "finished"
    assert [x.learning_rate for x in found.rollbacks] == [0.04]
    assert [x.round for x in found.records] == [30, 60]


def test_how_it_goes_back_is_not_ignored():
    args = argparse.Namespace(on_divergence="stop", rollback_scale=None, rollbacks=2)
    with pytest.raises(ValueError, match="need --on-divergence rollback, got stop"):
        rollbacks_of(args)
    args.on_divergence = "rollback"
    assert rollbacks_of(args) == RollbackPolicy(times=2)
