"""Texts: every character as it was, in windows that workers do not share."""

import hashlib

import chex
import numpy as np
import pytest

from olsgd_jax.training import (
    load_dataset,
    make_batches,
    make_partition,
    outline_dataset,
    partition_contiguous,
)
from olsgd_jax.training.data import tiny_shakespeare as module
from olsgd_jax.training.data.batches import Held, _held
from olsgd_jax.training.data.dataset import NO_LABEL, text_dataset
from olsgd_jax.training.data.windows import in_windows
from tests.texts import verses, write_shakespeare

TEXTS = {"train": "To be, or not", "validation": "\nto be", "test": ": Hm!"}


@pytest.fixture
def root(tmp_path, monkeypatch):
    sizes = {"train": len(TEXTS["train"]), "test": 6 + 5}
    monkeypatch.setattr(module, "NUM_TOKENS", sizes)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "data"


def as_text(dataset):
    """The characters of all tokens, from inputs and the last label."""
    parts = []
    for inputs, labels in (dataset[:2], dataset[2:4]):
        np.testing.assert_array_equal(inputs[1:], labels[:-1])
        tokens = [*inputs.tolist(), labels[-1].item()]
        parts.append("".join(dataset.alphabet[token] for token in tokens))
    return parts


def test_tiny_shakespeare_is_the_original_text(real_tiny_shakespeare):
    train, test = as_text(real_tiny_shakespeare)
    assert train.startswith("First Citizen:\nBefore we proceed any further, hear me")
    assert (len(train), len(test)) == (1_003_854, 111_540)
    # That of the whole file, as TensorFlow Datasets checks it after a download.
    assert hashlib.sha256((train + test).encode()).hexdigest() == (
        "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
    )
    assert real_tiny_shakespeare.alphabet == "".join(sorted(set(train)))
    assert real_tiny_shakespeare.num_classes == 65


def test_an_outline_has_the_sizes_of_the_text(real_tiny_shakespeare):
    outline = outline_dataset("tiny_shakespeare")
    for ours, theirs in zip(outline[:4], real_tiny_shakespeare[:4], strict=True):
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
    assert outline[4:] == real_tiny_shakespeare[4:]


def test_the_last_two_splits_are_tested_on(root, monkeypatch):
    write_shakespeare(root, TEXTS)
    dataset = load_dataset("tiny_shakespeare", root)
    assert as_text(dataset) == ["To be, or not", "\nto be: Hm!"]
    monkeypatch.setattr(module, "_read_split", None)  # the second time, from the cache
    chex.assert_trees_all_equal(load_dataset("tiny_shakespeare", root)[:4], dataset[:4])


def test_a_text_of_another_length_is_an_error(root):
    write_shakespeare(root, {**TEXTS, "test": "!"})
    with pytest.raises(
        ValueError, match="11 characters of tiny_shakespeare in validation and test, go"
    ):
        load_dataset("tiny_shakespeare", root)


def test_a_character_that_does_not_belong_there_is_an_error(root):
    write_shakespeare(root, {**TEXTS, "test": "2 or 3"})
    with pytest.raises(ValueError, match="all of tiny_shakespeare .* whose test split"):
        load_dataset("tiny_shakespeare", root)


@pytest.mark.parametrize("context", [1, 3, 5, 6, 11, 12])
def test_every_label_of_the_test_text_counts_once_and_in_order(context):
    tokens = np.arange(13, dtype=np.int32)
    cut = in_windows(text_dataset(tokens, tokens, "x" * 13), context)
    counted = cut.test_labels != NO_LABEL
    np.testing.assert_array_equal(cut.test_labels[counted], np.arange(1, 13))
    # Also where a label does not count, the input before it is that of the text.
    np.testing.assert_array_equal(cut.test_inputs[counted] + 1, np.arange(1, 13))
    assert cut.test_inputs.shape == cut.test_labels.shape
    np.testing.assert_array_equal(np.diff(cut.test_inputs, axis=1), 1)


def test_workers_learn_from_every_window_of_the_text():
    tokens = np.arange(13, dtype=np.int32)
    cut = in_windows(text_dataset(tokens, tokens, "x" * 13), 5)
    expected = np.arange(8)[:, None] + np.arange(5)
    np.testing.assert_array_equal(cut.train_inputs, expected)
    np.testing.assert_array_equal(cut.train_labels, expected + 1)


def test_a_window_longer_than_the_text_is_an_error():
    with pytest.raises(
        ValueError, match="context must be below .*, got 40 and 40; use"
    ):
        in_windows(verses(num_test=40), context=40)


@pytest.mark.parametrize("num_workers", [1, 3, 7])
def test_contiguous_parts_have_no_character_in_common(num_workers):
    context = 5
    cut = in_windows(verses(num_train=401), context)
    shards = make_partition("contiguous", cut.train_labels, num_workers, seed=0)
    # Characters of a window, and the label of its last one.
    used = [set((shard[:, None] + np.arange(context + 1)).flat) for shard in shards]
    assert sum(map(len, used)) == len(set.union(*used)) == 401 - 401 % num_workers
    assert len({len(shard) for shard in shards}) == 1
    for own in used:
        assert own == set(range(min(own), max(own) + 1))


def test_contiguous_parts_of_other_examples_leave_none_out():
    shards = partition_contiguous(12, num_workers=3)
    np.testing.assert_array_equal(np.stack(shards), np.arange(12).reshape(3, 4))


def test_parts_without_a_window_are_an_error():
    with pytest.raises(
        ValueError, match="more than 5 examples in a row, .*, got 4 work"
    ):
        partition_contiguous(15, num_workers=4, overlap=5)


def test_random_windows_are_of_the_whole_text():
    cut = in_windows(verses(), context=6)
    shards = make_partition("iid", cut.train_labels, 2, seed=0)
    assert all(np.ptp(shard) > 350 for shard in shards)


@pytest.mark.parametrize("name", ["paper_non_iid", "dirichlet"])
def test_windows_have_no_classes_to_be_parted_by(name):
    cut = in_windows(verses(), context=6)
    with pytest.raises(
        ValueError, match="one of iid, contiguous for a text, whose win"
    ):
        make_partition(name, cut.train_labels, 2, seed=0)


def rounds_of(mesh, text=None, partition="iid"):
    cut = in_windows(text or verses(), context=6)
    shards = make_partition(partition, cut.train_labels, 4, seed=0)
    batches = make_batches(
        {"inputs": cut.train_inputs, "labels": cut.train_labels},
        shards,
        sync_period=3,
        batch_size=4,
        seed=0,
        mesh=mesh,
    )
    return shards, [batches(number) for number in range(3)]


def test_a_worker_draws_windows_of_its_own_part(mesh):
    # All tokens differ here, so a window says where it is from.
    tokens = np.arange(400, dtype=np.int32)
    text = text_dataset(tokens, tokens, "x" * 400)
    shards, rounds = rounds_of(mesh, text, "contiguous")
    for batch in rounds:
        inputs, labels = (np.asarray(batch[name]) for name in ("inputs", "labels"))
        assert inputs.shape == labels.shape == (4, 3, 4, 6)
        assert inputs.dtype == labels.dtype == np.int32
        np.testing.assert_array_equal(inputs + 1, labels)
        np.testing.assert_array_equal(np.diff(inputs, axis=-1), 1)
        for own, shard in zip(inputs, shards, strict=True):
            assert np.isin(own[..., 0], shard).all()


def test_devices_get_the_windows_that_lanes_get(mesh):
    chex.assert_trees_all_equal(rounds_of(mesh)[1], rounds_of(None)[1])


def test_windows_are_not_copied_before_they_are_used():
    windows = in_windows(verses(), context=6).train_inputs
    own = np.array([3, 5])
    held = _held(windows, own)
    assert np.shares_memory(held.array, windows)
    np.testing.assert_array_equal(held.take(np.array([1])), windows[[5]])
    apart = _held(np.array(windows), own)  # other examples: those of own workers alone
    assert isinstance(apart, Held)
    assert len(apart.array) == 2
    np.testing.assert_array_equal(apart.take(np.array([1])), windows[[5]])


def test_an_epoch_has_as_many_windows_as_hold_the_text_once():
    tokens = np.zeros(6 * 100 + 6, np.int32)
    cut = in_windows(text_dataset(tokens, tokens, "x"), context=6)
    assert cut.epoch_size(partition_contiguous(len(cut.train_labels), 1)) == 100
