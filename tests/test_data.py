"""Data: every example is where it belongs, as often as it should be."""

import chex
import jax
import numpy as np
import pytest
from sklearn.datasets import load_digits

from olsgd_jax import load_dataset, make_batches, partition_iid, worker_mesh
from olsgd_jax.placement import batch_shardings

NUM_EXAMPLES, SHARD, BATCH = 26, 6, 4  # four shards of 6, two examples left out


def labels_by_round(num_rounds, sync_period=3, seed=0, mesh=None, shards=None):
    """Labels are the examples' own indices; (round, worker, step, batch)."""
    if shards is None:
        shards = partition_iid(NUM_EXAMPLES, 4, seed=0)
    indices = np.arange(NUM_EXAMPLES, dtype=np.int32)
    batches = make_batches(
        {"inputs": indices[:, None] * np.float32([1, 100]), "labels": indices},
        shards,
        sync_period=sync_period,
        batch_size=BATCH,
        seed=seed,
        mesh=mesh,
    )
    return np.stack([batches(round)["labels"] for round in range(num_rounds)])


def streams(rounds):
    """(round, worker, step, batch) -> (worker, stream)."""
    return rounds.swapaxes(0, 1).reshape(rounds.shape[1], -1)


def test_digits_are_split_into_all_of_scikit_learns_examples():
    pixels, labels = load_digits(return_X_y=True)
    data = load_dataset("digits")

    def rows(inputs, labels):
        return sorted(map(tuple, np.column_stack([inputs, labels]).tolist()))

    inputs = np.concatenate([data.train_inputs, data.test_inputs])
    both = rows(inputs, np.concatenate([data.train_labels, data.test_labels]))
    assert both == rows(pixels / 16, labels)


def test_digits_have_every_class_in_proportion():
    data = load_dataset("digits")
    train, test = np.bincount(data.train_labels), np.bincount(data.test_labels)
    proportion = len(data.test_labels) / 1797
    assert data.num_classes == len(train) == len(test)
    np.testing.assert_allclose(test, proportion * (train + test), atol=1)


def test_digits_are_the_same_at_every_load():
    chex.assert_trees_all_equal(load_dataset("digits"), load_dataset("digits"))


def test_digits_are_single_precision_between_0_and_1():
    data = load_dataset("digits")
    assert data.train_inputs.dtype == data.test_inputs.dtype == np.float32
    assert data.train_labels.dtype == data.test_labels.dtype == np.int32
    assert (data.train_inputs.min(), data.train_inputs.max()) == (0, 1)


def test_an_unknown_dataset_is_an_error_with_the_known_ones():
    with pytest.raises(ValueError, match="dataset must be one of digits, got 'cats'"):
        load_dataset("cats")


@pytest.mark.parametrize("num_workers", [1, 3, 4, 10])
def test_shards_are_disjoint_and_leave_out_fewer_examples_than_workers(num_workers):
    shards = partition_iid(10, num_workers, seed=1)
    assert shards.shape[0] == num_workers
    assert len(set(shards.flat)) == shards.size
    assert set(shards.flat) <= set(range(10))
    assert 10 - shards.size < num_workers


def test_a_partition_is_fixed_by_its_seed():
    np.testing.assert_array_equal(partition_iid(50, 4, 7), partition_iid(50, 4, 7))
    assert (partition_iid(50, 4, 7) != partition_iid(50, 4, 8)).any()


def test_more_workers_than_examples_are_an_error():
    with pytest.raises(ValueError, match="got 5 workers and 4 examples"):
        partition_iid(4, 5, seed=0)
    with pytest.raises(ValueError, match="num_workers must be at least 1, got 0"):
        partition_iid(4, 0, seed=0)


def test_every_pass_of_a_worker_goes_once_through_its_own_shard():
    # 4 rounds of 3 steps of 4 examples are 48, or 8 passes over a shard of 6.
    passes = streams(labels_by_round(4)).reshape(4, 8, SHARD)
    shards = partition_iid(NUM_EXAMPLES, 4, seed=0)
    expected = np.broadcast_to(np.sort(shards)[:, None], passes.shape)
    np.testing.assert_array_equal(np.sort(passes), expected)


def test_every_pass_worker_and_seed_has_another_order():
    shards = np.arange(4 * SHARD).reshape(4, SHARD)

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
        np.arange(8).reshape(4, 2),
        sync_period=1,
        batch_size=2,
        seed=0,
        mesh=mesh,
    )(0)
    assert isinstance(batches, jax.Array)
    assert batches.sharding == batch_shardings(batches, mesh)


def batches_of(num_examples=8, shards=((0, 1, 2), (3, 4, 5)), **sizes):
    sizes = {"sync_period": 1, "batch_size": 2, "seed": 0} | sizes
    return make_batches(np.arange(num_examples), np.array(shards), **sizes)


def test_a_batch_that_is_larger_than_a_shard_is_an_error():
    with pytest.raises(ValueError, match="got 4 and shards of 3 examples for 2 wor"):
        batches_of(batch_size=4)


@pytest.mark.parametrize("name", ["sync_period", "batch_size"])
def test_sizes_of_zero_are_errors(name):
    with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
        batches_of(**{name: 0})


def test_shards_of_another_dataset_are_an_error():
    with pytest.raises(ValueError, match="indices of the 5 examples, got 5"):
        batches_of(num_examples=5)
