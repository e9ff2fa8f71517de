"""Data sets: every example is there, once, as it should be."""

import chex
import numpy as np
import pytest
from sklearn.datasets import load_digits

from olsgd_jax.training import load_dataset, make_partition, outline_dataset
from olsgd_jax.training.data import images


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


def test_digits_need_no_place_to_be_kept(tmp_path, monkeypatch):
    kept = load_dataset("digits")
    (tmp_path / "olsgd_jax").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    chex.assert_trees_all_equal(load_dataset("digits"), kept)


def test_digits_are_single_precision_between_0_and_1():
    data = load_dataset("digits")
    assert data.train_inputs.dtype == data.test_inputs.dtype == np.float32
    assert data.train_labels.dtype == data.test_labels.dtype == np.int32
    assert (data.train_inputs.min(), data.train_inputs.max()) == (0, 1)


def test_an_unknown_dataset_is_an_error_with_the_known_ones():
    message = "dataset must be one of digits, cifar10, tiny_shakespeare, got 'cats'"
    with pytest.raises(ValueError, match=message):
        load_dataset("cats")


def test_cifar10_is_that_of_the_original_files(real_cifar10):
    data = real_cifar10
    # As in the first bytes of data_batch_1 and test_batch.
    assert data.train_labels[:10].tolist() == [6, 9, 9, 4, 1, 1, 2, 7, 8, 3]
    assert data.test_labels[:10].tolist() == [3, 8, 8, 0, 6, 6, 1, 6, 3, 1]
    assert np.bincount(data.train_labels).tolist() == [5000] * 10
    assert np.bincount(data.test_labels).tolist() == [1000] * 10
    assert data.train_inputs.dtype == data.test_inputs.dtype == np.uint8
    assert data.train_inputs[0, 0, 0].tolist() == [59, 62, 63]


def test_cifar10_has_the_mean_and_the_deviation_that_pixels_are_normalised_by(
    real_cifar10,
):
    # The authors' deviation is the mean of those within each image.
    some = real_cifar10.train_inputs[::5] / 255.0
    np.testing.assert_allclose(some.mean((0, 1, 2)), images.MEAN, atol=2e-3)
    np.testing.assert_allclose(some.std((1, 2)).mean(0), images.STD, atol=2e-3)


@pytest.mark.parametrize("name", ["iid", "paper_non_iid", "dirichlet"])
def test_an_outline_is_shared_out_like_the_data_set_itself(name, real_cifar10):
    outline = outline_dataset("cifar10")
    for ours, theirs in zip(outline[:4], real_cifar10[:4], strict=True):
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
    sizes = [
        [len(shard) for shard in make_partition(name, dataset.train_labels, 16, seed=0)]
        for dataset in (outline, real_cifar10)
    ]
    assert sizes[0] == sizes[1]
