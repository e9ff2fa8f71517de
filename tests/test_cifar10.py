"""CIFAR-10: the pixels as they were, in the order of the original files."""

import os

import numpy as np
import pytest
import tensorflow_datasets as tfds

from olsgd_jax.training import load_dataset
from olsgd_jax.training.data import cifar10 as module
from olsgd_jax.training.data import prepared
from tests.fake_cifar10 import (
    NUM_EXAMPLES,
    images_and_labels,
    write_cifar10,
    write_records,
)


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "NUM_EXAMPLES", NUM_EXAMPLES)
    monkeypatch.setattr(module, "CHUNK", 10)  # so that the last one is smaller
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "data"


def assert_is_fake(dataset, seed=0):
    for split, (images, labels) in {"train": dataset[:2], "test": dataset[2:4]}.items():
        expected_images, expected_labels = images_and_labels(split, seed)
        np.testing.assert_array_equal(images, expected_images)
        np.testing.assert_array_equal(labels, expected_labels)
    assert dataset.num_classes == 10


def test_examples_are_in_the_order_of_the_original_files(root):
    write_cifar10(root)
    assert_is_fake(load_dataset("cifar10", root))


def test_the_environment_says_where_the_data_are(root, monkeypatch):
    write_cifar10(root)
    monkeypatch.setenv("TFDS_DATA_DIR", str(root))
    assert_is_fake(load_dataset("cifar10"))
    monkeypatch.delenv("TFDS_DATA_DIR")
    monkeypatch.setenv("HOME", str(root.parent))
    os.rename(root, root.parent / "tensorflow_datasets")
    assert_is_fake(load_dataset("cifar10"))


def test_images_are_decoded_once_and_read_as_they_are_indexed(root, monkeypatch):
    write_cifar10(root)
    load_dataset("cifar10", root)
    monkeypatch.setattr(module, "_decode_images", None)
    dataset = load_dataset("cifar10", root)
    assert_is_fake(dataset)
    assert isinstance(dataset.train_inputs, np.memmap)


def test_other_files_are_not_taken_for_those_in_the_cache(root):
    write_cifar10(root)
    load_dataset("cifar10", root)
    write_cifar10(root, seed=1)
    assert_is_fake(load_dataset("cifar10", root), seed=1)


def test_absent_data_that_cannot_be_prepared_are_an_error_with_the_way_out(root):
    message = (
        f"must hold cifar10/3.0.2, got {root}, .*'absent'.* set --data-dir or TFDS.*"
        r'pip install "olsgd_jax\[data\]"'
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prepared, "NEEDED", ("absent",))
        with pytest.raises(FileNotFoundError, match=message):
            load_dataset("cifar10", root)


class Builder:
    """What tfds.builder gives, but for the network."""

    def __init__(self, name, data_dir, file_format):
        assert (name, file_format) == ("cifar10:3.0.2", "array_record")
        self.data_dir = data_dir

    def download_and_prepare(self):
        write_cifar10(self.data_dir)


def test_absent_data_are_downloaded(root, monkeypatch):
    monkeypatch.setattr(prepared, "NEEDED", ())
    with monkeypatch.context() as patch:
        patch.setattr(tfds, "builder", Builder)
        directory = prepared.prepared_directory("cifar10", "3.0.2", root)
    assert directory == root / "cifar10/3.0.2"
    assert_is_fake(load_dataset("cifar10", root))


def test_a_download_that_fails_is_an_error_with_the_way_out(root, monkeypatch):
    def no_network(self):
        raise ConnectionError("no route to host")

    monkeypatch.setattr(prepared, "NEEDED", ())
    monkeypatch.setattr(tfds, "builder", Builder)
    monkeypatch.setattr(Builder, "download_and_prepare", no_network)
    with pytest.raises(
        FileNotFoundError, match="no route to host.* run once with a net"
    ):
        load_dataset("cifar10", root)


def test_another_version_is_an_error_that_names_both(root):
    write_cifar10(root, version="3.0.1")
    with pytest.raises(ValueError, match=r"in version 3\.0\.2, got 3\.0\.1 in "):
        load_dataset("cifar10", root)


def test_another_format_is_an_error(root):
    info = write_cifar10(root) / "dataset_info.json"
    info.write_text(info.read_text().replace("array_record", "tfrecord"))
    with pytest.raises(ValueError, match="as array_record, got .*TFRECORD"):
        load_dataset("cifar10", root)


@pytest.mark.parametrize("split", ["train", "test"])
def test_a_file_that_is_cut_off_is_an_error(split, root):
    directory = write_cifar10(root)
    load_dataset("cifar10", root)
    path = directory / f"cifar10-{split}.array_record-00000-of-00001"
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(
        ValueError, match=f"all of cifar10.* whose {split} split cannot"
    ):
        load_dataset("cifar10", root)


def test_another_number_of_examples_is_an_error(root, monkeypatch):
    write_cifar10(root)
    monkeypatch.setitem(module.NUM_EXAMPLES, "test", 13)
    with pytest.raises(ValueError, match="12 examples instead of 13"):
        load_dataset("cifar10", root)


def test_an_example_that_is_there_twice_for_another_is_an_error(root):
    directory = write_cifar10(root)
    twice = [(max(i, 1), np.zeros((32, 32, 3), np.uint8), 0) for i in range(12)]
    write_records(directory, "test", twice)
    with pytest.raises(ValueError, match="1 examples are missing"):
        load_dataset("cifar10", root)


@pytest.mark.parametrize("looks", [True, False])
def test_progress_is_shown_to_those_who_look(looks, root, monkeypatch, capsys):
    write_cifar10(root)
    monkeypatch.setattr("sys.stderr.isatty", lambda: looks)
    monkeypatch.setenv("FORCE_COLOR", "1")  # by itself no reason to show it
    load_dataset("cifar10", root)
    out, err = capsys.readouterr()
    assert out == ""
    assert ("cifar10:3.0.2, train" in err) == looks
