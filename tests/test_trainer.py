"""Training: the loop is the plain loop, and its records say what happened."""

import dataclasses
import re

import jax
import numpy as np
import optax
import pytest

from olsgd_jax.reductions import SENDING
from olsgd_jax.training import Config, describe, evaluate, loop, train
from olsgd_jax.training.components import build

SMALL = Config(width=8, num_rounds=5, evaluate_every=2, batch_size=8)
NUM_BYTES = 4 * (64 * 8 + 8 + 8 * 10 + 10)  # of one model, in single precision


def replace(**options):
    return dataclasses.replace(SMALL, **options)


def strategy(name, **options):
    return replace(strategy=name, strategy_args=None, **options)


def without_seconds(records):
    return [record._replace(seconds=0.0) for record in records]


def numbers(records):
    """Records as rows of numbers."""
    return [
        [x for x in record if isinstance(x, int | float)]
        + [x for test in record.tests.values() for x in test]
        for record in records
    ]


def test_one_workers_run_is_the_plain_loop():
    config = strategy("local_sgd", num_workers=1, dropout=0.0)
    components = build(config)
    step = jax.jit(jax.value_and_grad(components.task.loss, has_aux=True))
    params, model_state = components.task.init(jax.random.key(config.seed))
    opt_state, losses = components.optimizer.init(params), []
    for number in range(config.num_rounds):
        for k in range(config.sync_period):
            batch = jax.tree.map(lambda x, k=k: x[0, k], components.batches(number))
            (loss, _), grads = step(params, model_state, batch, jax.random.key(0))
            updates, opt_state = components.optimizer.update(grads, opt_state, params)
            params = optax.apply_updates(params, updates)
            losses.append(float(loss))

    first, second, last = train(config)
    # Single precision: 20 steps in another order of operations.
    got = [first.train_loss, second.train_loss, last.train_loss]
    expected = [np.mean(losses[:8]), np.mean(losses[8:16]), np.mean(losses[16:])]
    np.testing.assert_allclose(got, expected, rtol=1e-5)
    data = components.dataset
    test = evaluate(components.task, params, {}, data.test_inputs, data.test_labels)
    np.testing.assert_allclose(last.test_loss, test.loss, rtol=1e-5)
    assert last.test_accuracy == test.accuracy


def test_a_record_is_made_every_evaluate_every_rounds_and_of_the_last_round():
    records = list(train(SMALL))
    assert [record.round for record in records] == [2, 4, 5]
    assert [record.step for record in records] == [8, 16, 20]
    # 4 workers with batches of 8
    assert [record.examples for record in records] == [256, 512, 640]
    assert np.all(np.diff([0, *(record.seconds for record in records)]) > 0)


def batches_and_waits(config, monkeypatch):
    """Trains, and lists the rounds that batches are made for, and when it waits."""
    events, wait = [], jax.block_until_ready
    components = build(config)

    def batches(number):
        events.append(number)
        return components.batches(number)

    def watched(values):
        events.append("wait")
        return wait(values)

    records = train(config, components._replace(batches=batches))
    monkeypatch.setattr(jax, "block_until_ready", watched)
    assert len(list(records)) == -(-config.num_rounds // config.evaluate_every)
    return events


def test_at_most_two_rounds_are_under_way(monkeypatch):
    events = batches_and_waits(replace(evaluate_every=5), monkeypatch)
    # With every round there is a wait, and one more for the last.
    assert events[-11:] == [*(x for i in range(5) for x in (i, "wait")), "wait"]


def test_the_next_batches_are_there_when_a_round_ends_at_a_stop(monkeypatch):
    events = batches_and_waits(replace(num_rounds=3, evaluate_every=2), monkeypatch)
    stop = ["wait"]
    assert events[-8:] == [0, "wait", 1, "wait", 2, *stop, "wait", *stop]


@pytest.mark.parametrize(
    ("name", "num_bytes"),
    [
        ("sync_sgd", NUM_BYTES),  # a gradient at every step
        ("local_sgd", NUM_BYTES / 4),  # a model every 4 steps
        ("overlap_local_sgd", NUM_BYTES / 4),
    ],
)
def test_bytes_per_step_are_those_of_the_models_sent(name, num_bytes):
    [record] = train(strategy(name, num_rounds=1))
    assert record.bytes_per_step == num_bytes


# Of 4 shards with 153 numbers: blocks of 128 in as many bits, and a row of scales.
FEWER_BYTES = {
    "exact": NUM_BYTES,
    "bfloat16": 4 * 153 * 2,
    "int8": 4 * (2 * 128 + 128),
    "int4": 4 * (128 + 128),
    "int2": 4 * (128 + 128),
    "top_k": 4 * 8 * (2 + 1),
    "random_mask": 4 * (64 * 8 // 32 + 1 + 3 + 1),
    "low_rank": 4 * (4 * (64 + 8) + 8 + 4 * (8 + 10) + 10),
}


@pytest.mark.parametrize("name", ["sync_sgd", "local_sgd", "overlap_local_sgd"])
def test_bytes_per_step_are_those_of_fewer_bits(name):
    [record] = train(strategy(name, num_rounds=1, reduction="int8"))
    expected = FEWER_BYTES["int8"] / (1 if name == "sync_sgd" else 4)
    assert record.bytes_per_step == expected


@pytest.mark.parametrize("name", SENDING)
def test_a_run_knows_the_bytes_of_its_reduction_beforehand(name):
    facts = describe(strategy("cocod_sgd", reduction=name))
    assert facts.bytes_per_round == FEWER_BYTES[name]


@pytest.fixture(scope="module")
def by_mapping():
    return {
        mapping: without_seconds(train(replace(mapping=mapping, dropout=0.2)))
        for mapping in ("vmap", "pmap", "shard_map")
    }


@pytest.mark.parametrize("mapping", ["vmap", "shard_map"])
def test_the_same_seed_gives_the_same_bits(mapping, by_mapping):
    again = without_seconds(train(replace(mapping=mapping, dropout=0.2)))
    assert again == by_mapping[mapping]


@pytest.mark.parametrize("mapping", ["pmap", "shard_map"])
def test_workers_on_devices_train_like_workers_in_lanes(mapping, by_mapping):
    # Single precision: 20 steps in another order of operations.
    on_devices, in_lanes = numbers(by_mapping[mapping]), numbers(by_mapping["vmap"])
    np.testing.assert_allclose(on_devices, in_lanes, rtol=1e-4)


@pytest.mark.parametrize("places", [1, 2])
def test_workers_on_fewer_devices_train_like_workers_in_lanes(
    places, by_mapping, monkeypatch
):
    monkeypatch.setattr(jax, "device_count", lambda: places)
    records = without_seconds(train(replace(mapping="shard_map", dropout=0.2)))
    # Single precision: 20 steps in another order of operations.
    in_lanes = numbers(by_mapping["vmap"])
    np.testing.assert_allclose(numbers(records), in_lanes, rtol=1e-4)


def test_another_seed_gives_another_run(by_mapping):
    other = next(train(replace(mapping="vmap", dropout=0.2, seed=1)))
    assert other.train_loss != by_mapping["vmap"][0].train_loss


def test_under_sync_sgd_the_sync_period_only_says_when_to_look():
    one, four = (
        list(
            train(strategy("sync_sgd", sync_period=tau, num_rounds=n, evaluate_every=n))
        )
        for tau, n in ((1, 8), (4, 2))
    )
    # Single precision: 8 steps in another order of operations.
    np.testing.assert_allclose(one[-1].test_loss, four[-1].test_loss, rtol=1e-5)
    np.testing.assert_allclose(one[-1].train_loss, four[-1].train_loss, rtol=1e-5)


def test_workers_that_never_meet_drift_apart_and_workers_that_met_have_no_spread():
    alone = replace(strategy_args={"pullback": 0.0})
    assert next(train(alone)).spread > 0.01
    assert next(train(strategy("local_sgd"))).spread == 0


def test_all_models_that_are_asked_for_are_evaluated():
    models = ("worker", "consensus", "anchor", "virtual")
    record = next(train(replace(evaluate=models)))
    assert tuple(record.tests) == models
    assert len({test.loss for test in record.tests.values()}) == 4
    assert record.test_loss == record.tests["worker"].loss


def test_a_first_round_may_have_one_more_step():
    long, plain = (
        list(train(replace(long_first_round=x, evaluate_every=1)))
        for x in (True, False)
    )
    assert [record.step for record in long] == [5, 9, 13, 17, 21]
    # 4 workers with batches of 8
    assert [record.examples for record in long] == [160, 288, 416, 544, 672]
    assert long[0].train_loss != plain[0].train_loss
    # One round of five steps is the same whatever it is called.
    five = next(train(replace(sync_period=5, evaluate_every=1)))
    assert five.tests == long[0].tests


def test_the_learning_rate_is_that_of_the_last_step():
    options = {
        "scale_learning_rate": True,
        "batch_size": 64,
        "warmup_epochs": 8 / 5.625,
    }
    records = list(train(replace(evaluate_every=1, **options)))  # warm after 8 steps
    expected = [0.1 + 0.1 * min(step - 1, 8) / 8 for step in (4, 8, 12, 16, 20)]
    got = [record.learning_rate for record in records]
    np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_the_round_is_made_as_the_config_says(monkeypatch):
    # Mappings agree by design and digits have no model state: records cannot tell.
    seen = []

    def make_round(*components, **options):
        seen.append(options)
        return trainer_make_round(*components, **options)

    trainer_make_round = loop.make_round
    monkeypatch.setattr(loop, "make_round", make_round)
    config = replace(mapping="pmap", model_state_policy="averaged", sync_period=2)
    next(train(config))
    [options] = seen
    assert options["mesh"].size == 4
    for name in ("mapping", "model_state_policy", "sync_period"):
        assert options[name] == getattr(config, name)


def test_it_learns():
    *_, last = train(Config(num_rounds=30, evaluate_every=30))
    assert last.test_accuracy > 0.9


def test_a_loss_that_is_not_finite_stops_training():
    # The second step is at a model that overflows; a round is one step.
    config = strategy("local_sgd", learning_rate=1e30, sync_period=1)
    components = build(config)
    losses = [
        components.task.loss(
            *components.task.init(jax.random.key(0)),
            jax.tree.map(lambda x, i=i: x[i, 0], components.batches(0)),
            jax.random.key(0),
        )[0]
        for i in range(4)
    ]
    message = (
        r"train_loss must stay finite, got (nan|inf) in round 2 of local_sgd, worker "
        r"0, 1, 2, 3; the last finite train_loss was (.*); use a learning_rate below "
        r"1e\+30"
    )
    with pytest.raises(FloatingPointError, match=message) as error:
        next(train(config))
    last_loss = re.search(message, str(error.value)).group(2)
    np.testing.assert_allclose(float(last_loss), np.mean(losses), rtol=1e-6)


def test_the_first_loss_may_already_be_the_one_that_is_not_finite():
    message = "in round 1 of local_sgd, worker .*; the last finite train_loss was None"
    with pytest.raises(FloatingPointError, match=message):
        next(train(strategy("local_sgd", learning_rate=1e30)))


def test_a_test_loss_that_is_not_finite_stops_training_as_well():
    options = {"learning_rate": 1e30, "sync_period": 1, "num_rounds": 1}
    with pytest.raises(FloatingPointError, match="test_loss must .* in round 1 of loc"):
        next(train(strategy("local_sgd", **options)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dataset": "cats"}, "dataset must be one of digits, cifar10, tiny"),
        ({"strategy": "adam"}, "strategy must be one of"),
        ({"batch_size": 361}, "got 361 and 360 examples with 4 workers"),
        (
            {"strategy": "local_sgd", "evaluate": ("anchor",)},
            "'anchor' under local_sgd",
        ),
    ],
)
def test_what_cannot_be_trained_is_an_error_before_the_first_record(options, message):
    with pytest.raises(ValueError, match=message):
        train(replace(strategy_args=None, **options))
