"""Evaluation: loss and accuracy against their definitions."""

import importlib

import numpy as np
import pytest

from olsgd_jax.training import Task, evaluate

# The package's name for it is the function.
module = importlib.import_module("olsgd_jax.training.evaluate")

RNG = np.random.default_rng(0)
INPUTS, WEIGHT = RNG.normal(size=(10, 3)), RNG.normal(size=(3, 4))
LABELS = RNG.integers(4, size=10, dtype=np.int32)


def task_of(predict):
    return Task(init=None, loss=None, predict=predict)


def linear(params, model_state, x):
    return x @ params + model_state


def expected(offset):
    logits = INPUTS @ WEIGHT + offset
    log_sum = np.log(np.exp(logits).sum(axis=1))
    loss = np.mean(log_sum - logits[np.arange(10), LABELS])
    return loss, np.mean(logits.argmax(axis=1) == LABELS)


@pytest.mark.parametrize("chunk", [1, 3, 5, 10, 11])
def test_loss_and_accuracy_follow_their_definitions_in_chunks_of_any_size(
    chunk, monkeypatch
):
    monkeypatch.setattr(module, "CHUNK", chunk)
    offset = np.array([0.0, 1.0, 0.0, -1.0])
    got = evaluate(task_of(linear), WEIGHT, offset, INPUTS, LABELS)
    np.testing.assert_allclose(got, expected(offset), rtol=1e-12)


def test_accuracy_is_1_for_sure_and_right_and_0_for_sure_and_wrong():
    logits = 50 * np.eye(4)
    sure = task_of(lambda params, model_state, x: x)
    labels = np.arange(4, dtype=np.int32)
    right = evaluate(sure, (), (), logits, labels)
    wrong = evaluate(sure, (), (), logits, (labels + 1) % 4)
    np.testing.assert_allclose(right, (0, 1), atol=1e-12)
    np.testing.assert_allclose(wrong, (50, 0), atol=1e-12)


def test_a_second_evaluation_compiles_nothing(monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 5)
    num_traces = 0

    def counted(params, model_state, x):
        nonlocal num_traces
        num_traces += 1
        return x @ params

    for scale in (1.0, 2.0):
        evaluate(task_of(counted), scale * WEIGHT, (), INPUTS, LABELS)
    assert num_traces == 1


def test_a_task_that_predicts_nothing_is_an_error():
    with pytest.raises(ValueError, match="task must have a predict to be evaluated"):
        evaluate(task_of(None), WEIGHT, (), INPUTS, LABELS)


@pytest.mark.parametrize("num_labels", [0, 9])
def test_labels_that_do_not_match_the_inputs_are_an_error(num_labels):
    with pytest.raises(ValueError, match=f"got {num_labels} labels and 10 inputs"):
        evaluate(task_of(linear), WEIGHT, 0.0, INPUTS, LABELS[:num_labels])


def test_no_examples_at_all_are_an_error():
    with pytest.raises(ValueError, match="got 0 labels and 0 inputs"):
        evaluate(task_of(linear), WEIGHT, 0.0, INPUTS[:0], LABELS[:0])
