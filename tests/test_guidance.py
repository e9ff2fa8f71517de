"""The experiment behind docs/results/tuning.md at its smallest size."""

import json
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from rich.console import Console

from experiments import guidance
from experiments.measured.measure_all import measure_all
from experiments.tuning import problems, training
from experiments.tuning.cases import Case
from olsgd_jax import consensus_of, distribute, overlap_jit, to_workers
from olsgd_jax.training.data import prepared
from tests.mistakes import run

SYNC = Case("digits", "sync_sgd", 0.1)
OVERLAP = Case("digits", "overlap_local_sgd", 0.1, 2, 0.6, 0.7)


@pytest.fixture(autouse=True)
def as_users_have_it():
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        yield


def train(case, problem, num_steps=20):
    return dict(training.train(case._replace(num_steps=num_steps), problem))


def test_the_language_model_learns_and_sees_no_future(
    real_tiny_shakespeare, monkeypatch
):
    monkeypatch.setattr(
        problems, "load_dataset", lambda name, data_dir: real_tiny_shakespeare
    )
    problem = problems.gpt(None, width=16, depth=1)
    losses = train(Case("gpt", "cocod_sgd", 1e-2, 2), problem, 40)
    assert list(losses) == list(range(2, 41, 2))
    assert losses[40] < math.log(65) - 0.5  # 65 characters; guessing gives log 65
    # A model that saw the character it has to guess would be certain of it soon.
    assert losses[40] > 2

    text, _ = problem.held_out
    model = problems.GPT(65, 16, 1)
    params = problem.init(jax.random.key(0))
    changed = text[:1].copy()
    changed[0, 40:] = 0
    before, after = (model.apply({"params": params}, x) for x in (text[:1], changed))
    np.testing.assert_array_equal(before[0, :40], after[0, :40])
    assert not np.array_equal(before[0, 40:], after[0, 40:])


def test_a_warm_up_before_the_same_strategy_changes_nothing():
    problem = problems.digits()
    warm = train(SYNC._replace(warmup=0.25), problem)
    assert warm == train(SYNC, problem)


def test_a_warm_up_is_synchronous_until_it_ends_and_not_after():
    problem = problems.digits()
    sync, warm = (train(x, problem) for x in (SYNC, OVERLAP._replace(warmup=0.5)))
    assert all(sync[k] == warm[k] for k in range(1, 11))
    assert sync[20] != warm[20]


@pytest.mark.parametrize("args", [(0.6, 0.7), (0.3, 0.0), (0.5, 0.5)])
def test_the_consensus_keeps_the_stated_part_of_its_steps(args):
    # Under a constant gradient of −1 a local step moves each worker by the rate, 1.
    case = Case("digits", "overlap_local_sgd", 1.0, 4, *args)
    tx = distribute(optax.sgd(1.0), case.build(), case.sync_period)

    def step(state, grads):
        updates, opt_state = tx.update(grads, state[1], state[0])
        return optax.apply_updates(state[0], updates), opt_state

    state = to_workers((jnp.zeros(()), tx.init(jnp.zeros(()))), 2)
    step, positions = overlap_jit(step), []
    for _ in range(50 * case.sync_period):
        state = step(state, -jnp.ones(2))
        positions.append(float(consensus_of(state[0])))
    pace = (positions[-1] - positions[-1 - case.sync_period]) / case.sync_period
    assert pace == pytest.approx(case.progress, rel=1e-4)


def test_runs_that_are_kept_are_not_run_again_and_half_a_line_is_none(tmp_path):
    file, console = tmp_path / guidance.RUNS, Console(quiet=True)
    sync, overlap = (case._replace(num_steps=20) for case in (SYNC, OVERLAP))
    digits = problems.digits()

    def measure(case):
        return guidance.measure(case, digits)

    first = measure_all([sync], measure, file, console)
    with file.open("a") as out:
        out.write('{"task": "dig')
    both = measure_all([sync, overlap], measure, file, console)
    assert both[0]["seconds"] == first[0]["seconds"]
    kept = [json.loads(line) for line in file.read_text().splitlines()]
    assert [Case(*(x[y] for y in Case._fields)) for x in kept] == [sync, overlap]
    assert measure_all([sync, overlap], None, file, console) == kept


def test_the_script_prints_a_table_of_its_runs(tmp_path, capsys):
    options = ["--tasks", "digits", "--steps", 20, "--first", 2, "--out", tmp_path]
    run(guidance.main, *options, "--sync-periods", 4)
    printed = capsys.readouterr().out
    [last] = [
        json.loads(line)["losses"][-1]
        for line in (tmp_path / guidance.RUNS).read_text().splitlines()
        if '"local_sgd"' in line
    ]
    assert re.search(rf"local_sgd +│ 4 .*{last[1]:.3f}", printed)

    run(guidance.main, *options, "--show")
    shown = capsys.readouterr().out
    assert shown.strip() == printed[printed.index("digits: held-out") :].strip()


def test_steps_that_cannot_be_parted_are_an_error(capsys):
    with pytest.raises(SystemExit):
        run(guidance.main, "--steps", 30)
    assert "--steps must be a multiple of 20, got 30" in capsys.readouterr().err


def test_a_text_that_is_not_there_is_an_error_with_the_way_out(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(prepared, "NEEDED", ("absent",))
    with pytest.raises(SystemExit):
        run(guidance.main, "--tasks", "gpt", "--data-dir", tmp_path)
    said = capsys.readouterr().err
    assert f"data_dir must hold tiny_shakespeare/1.0.0, got {tmp_path}" in said
    assert "set --data-dir or TFDS_DATA_DIR" in said
