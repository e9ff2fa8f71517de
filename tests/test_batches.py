"""Batches: every worker sees its own examples, as often as it should, in any part."""

import chex
import jax
import numpy as np
import pytest

from olsgd_jax import worker_mesh
from olsgd_jax.training import load_dataset, make_batches, partition_iid
from olsgd_jax.training.data.batches import make_stream
from olsgd_jax.workers.sharding import batch_shardings

NUM_EXAMPLES, SHARD, BATCH = 26, 6, 4  # four shards of 6, two examples left out


def labels_by_round(num_rounds, sync_period=3, shards=None, **options):
    """Labels are the examples' own indices; (round, worker, step, batch)."""
    if shards is None:
        shards = partition_iid(NUM_EXAMPLES, 4, seed=0)
    indices = np.arange(NUM_EXAMPLES, dtype=np.int32)
    batches = make_batches(
        {"inputs": indices[:, None] * np.float32([1, 100]), "labels": indices},
        shards,
        sync_period=sync_period,
        batch_size=BATCH,
        **{"seed": 0} | options,
    )
    return np.stack([batches(round)["labels"] for round in range(num_rounds)])


def streams(rounds):
    """(round, worker, step, batch) -> (worker, stream)."""
    return rounds.swapaxes(0, 1).reshape(rounds.shape[1], -1)


def test_every_pass_worker_and_seed_has_another_order():
    shards = list(np.arange(4 * SHARD).reshape(4, SHARD))

    def orders(seed):
        stream = streams(labels_by_round(2, seed=seed, shards=shards))
        return stream.reshape(4, 4, SHARD) % SHARD  # (worker, pass, place in shard)

    first, second = orders(seed=0), orders(seed=1)
    for i in range(1, 4):
        assert (first[:, 0] != first[:, i]).any()
        assert (first[0] != first[i]).any()
    assert (first != second).any()


def test_the_order_of_the_first_pass_is_not_that_of_the_partition():
    # Both come from the same seed, and must not draw the same numbers.
    shards = partition_iid(NUM_EXAMPLES, 1, seed=0)
    first_pass = streams(labels_by_round(3, shards=shards))[0, :NUM_EXAMPLES]
    assert (first_pass != shards[0][shards[0]]).any()


@pytest.mark.parametrize("reshuffle", [True, False])
def test_workers_go_through_shards_of_different_sizes(reshuffle, mesh):
    sizes = (4, 7, 10, 5)
    shards = np.split(np.random.default_rng(0).permutation(26), np.cumsum(sizes)[:-1])
    # 35 rounds of 3 steps of 4 examples are 420: whole passes for every worker.
    rounds = labels_by_round(35, shards=shards, mesh=mesh, reshuffle=reshuffle)
    for stream, shard in zip(streams(rounds), shards, strict=True):
        passes = stream.reshape(-1, len(shard))
        expected = np.broadcast_to(np.sort(shard), passes.shape)
        np.testing.assert_array_equal(np.sort(passes), expected)
        assert (passes == passes[0]).all() != reshuffle


def test_the_sync_period_has_no_say_in_the_order_of_examples():
    one, three = labels_by_round(6, sync_period=1), labels_by_round(2, sync_period=3)
    np.testing.assert_array_equal(streams(one), streams(three))


def test_inputs_keep_their_labels():
    data = load_dataset("digits")
    batches = make_batches(
        {"inputs": data.train_inputs, "labels": data.train_labels},
        partition_iid(1440, 4, seed=0),
        sync_period=2,
        batch_size=5,
        seed=0,
    )(round=3)
    assert batches["inputs"].shape == (4, 2, 5, 64)
    assert batches["inputs"].dtype == np.float32
    pairs = {
        (inputs.tobytes(), label)
        for inputs, label in zip(data.train_inputs, data.train_labels, strict=True)
    }
    inputs = np.asarray(batches["inputs"]).reshape(-1, 64)
    for row, label in zip(inputs, batches["labels"].flatten().tolist(), strict=True):
        assert (row.tobytes(), label) in pairs


def test_devices_get_the_batches_that_lanes_get():
    chex.assert_trees_all_equal(
        labels_by_round(3, mesh=None), labels_by_round(3, mesh=worker_mesh(4))
    )


def test_a_workers_batches_lie_on_its_device():
    mesh = worker_mesh(4)
    batches = make_batches(
        np.arange(8),
        list(np.arange(8).reshape(4, 2)),
        sync_period=1,
        batch_size=2,
        seed=0,
        mesh=mesh,
    )(0)
    assert isinstance(batches, jax.Array)
    assert batches.sharding == batch_shardings(batches, mesh)


def batches_of(num_examples=8, shards=((0, 1, 2), (3, 4, 5)), **sizes):
    sizes = {"sync_period": 1, "batch_size": 2, "seed": 0} | sizes
    return make_batches(np.arange(num_examples), list(np.array(shards)), **sizes)


@pytest.mark.parametrize("name", ["sync_period", "batch_size"])
def test_sizes_of_zero_are_errors(name):
    with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
        batches_of(**{name: 0})


def test_shards_of_another_dataset_are_an_error():
    with pytest.raises(ValueError, match="indices of the 5 examples, got 5"):
        batches_of(num_examples=5)


def test_the_smallest_shard_limits_the_batches():
    shards = [np.arange(5), np.arange(5, 7)]
    with pytest.raises(ValueError, match="got 3 and 2 examples with 2 workers"):
        make_batches(np.arange(8), shards, sync_period=1, batch_size=3, seed=0)


@pytest.mark.parametrize("num_shards", [0, 3])
def test_another_number_of_shards_than_workers_is_an_error(num_shards):
    shards, sizes = [np.arange(2)] * num_shards, {"sync_period": 1, "batch_size": 1}
    with pytest.raises(ValueError, match=f"got {num_shards} shards and 4 slots"):
        make_batches(np.arange(8), shards, seed=0, mesh=worker_mesh(4), **sizes)
    with pytest.raises(ValueError, match="got 0 shards and 1 slots"):
        make_batches(np.arange(8), [], seed=0, **sizes)


def test_without_reshuffling_every_pass_repeats_the_first():
    passes = make_stream(7, seed=3, worker=2, reshuffle=False)(0, 70).reshape(10, 7)
    first = make_stream(7, seed=3, worker=2)(0, 7)
    np.testing.assert_array_equal(passes, np.broadcast_to(first, (10, 7)))


def test_a_stream_has_the_same_parts_in_any_order_and_size():
    whole = make_stream(7, seed=0, worker=0)(0, 210)
    for size in (1, 5, 7, 30):
        stream = make_stream(7, seed=0, worker=0)
        for first in reversed(range(0, 210, size)):
            part = whole[first : first + size]
            np.testing.assert_array_equal(stream(first, len(part)), part)


def test_an_order_is_drawn_once_for_all_rounds_of_a_pass(monkeypatch):
    draws, draw = [], np.random.default_rng
    monkeypatch.setattr(np.random, "default_rng", lambda x: draws.append(x) or draw(x))
    stream = make_stream(100, seed=0, worker=0)
    for first in range(0, 300, 3):  # 3 passes, 100 rounds
        stream(first, 3)
    assert len(draws) == 3


def six_each(**options):
    labels = np.arange(24, dtype=np.int32)
    shards = list(labels.reshape(4, 6))
    sizes = {"sync_period": 3, "batch_size": 2, "seed": 0}
    return make_batches({"labels": labels}, shards, **sizes, **options)


def test_a_long_first_round_takes_one_step_more_of_the_same_stream():
    plain, long = six_each(), six_each(long_first_round=True)

    def stream(batches):
        rounds = [np.asarray(batches(i)["labels"]).reshape(4, -1) for i in range(3)]
        return np.concatenate(rounds, axis=1)

    assert long(0)["labels"].shape == (4, 4, 2)
    assert long(1)["labels"].shape == (4, 3, 2)
    np.testing.assert_array_equal(stream(long)[:, :18], stream(plain))


def test_a_slot_of_the_mesh_gets_the_batches_of_all_its_workers():
    in_lanes = six_each()(1)["labels"]
    on_two = six_each(mesh=worker_mesh(2))(1)["labels"]
    np.testing.assert_array_equal(on_two, in_lanes)
    assert {shard.data.shape for shard in on_two.addressable_shards} == {(2, 3, 2)}
