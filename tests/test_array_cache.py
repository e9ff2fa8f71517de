"""Arrays on disk: made once, whole or not there, whoever writes them."""

import os

import jax
import numpy as np
import pytest

from olsgd_jax.training.data.array_cache import cache_directory, cached_arrays

ARRAYS = {
    "images": np.arange(60_000, dtype=np.uint8).reshape(100, 600),
    "labels": np.arange(100, dtype=np.int32),
}
OUTLINE = {k: jax.ShapeDtypeStruct(x.shape, x.dtype) for k, x in ARRAYS.items()}


class Maker:
    """Makes the arrays, and counts how often it had to."""

    calls = 0

    def __call__(self):
        self.calls += 1
        return ARRAYS


def assert_right(arrays):
    assert arrays.keys() == ARRAYS.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, ARRAYS[name])
        assert array.dtype == ARRAYS[name].dtype


def test_arrays_are_made_once_and_read_from_disk_as_they_are_indexed(tmp_path):
    make = Maker()
    for _ in range(3):
        arrays = cached_arrays(tmp_path / "new", OUTLINE, make)
        assert_right(arrays)
        assert all(isinstance(x, np.memmap) for x in arrays.values())
    assert make.calls == 1


def test_arrays_on_disk_cannot_be_changed(tmp_path):
    arrays = cached_arrays(tmp_path, OUTLINE, Maker())
    with pytest.raises(ValueError, match="read-only"):
        arrays["labels"][0] = 1


@pytest.mark.parametrize(
    "damaged",
    [
        lambda whole: whole[:-1],
        lambda whole: whole[:50],
        lambda whole: b"",
        lambda whole: b"x" * len(whole),
    ],
    ids=["cut off", "cut off in the header", "empty", "no array"],
)
@pytest.mark.parametrize("name", ARRAYS)
def test_a_damaged_file_is_made_anew(damaged, name, tmp_path):
    make, path = Maker(), tmp_path / f"{name}.npy"
    cached_arrays(tmp_path, OUTLINE, make)
    path.write_bytes(damaged(path.read_bytes()))
    assert_right(cached_arrays(tmp_path, OUTLINE, make))
    assert make.calls == 2


@pytest.mark.parametrize("other", [ARRAYS["labels"][1:], ARRAYS["labels"].astype("i8")])
def test_a_file_of_another_shape_or_dtype_is_made_anew(other, tmp_path):
    cached_arrays(tmp_path, OUTLINE, Maker())
    np.save(tmp_path / "labels.npy", other)
    assert_right(cached_arrays(tmp_path, OUTLINE, Maker()))


def test_whoever_makes_the_same_arrays_meanwhile_does_no_harm(tmp_path):
    opened = []

    def make():
        opened.append(cached_arrays(tmp_path, OUTLINE, Maker()))
        return ARRAYS

    assert_right(cached_arrays(tmp_path, OUTLINE, make))
    assert_right(opened[0])


def test_a_file_is_whole_when_it_appears(tmp_path, monkeypatch):
    replace = os.replace

    def replace_whole(source, target):
        np.testing.assert_array_equal(np.load(source), ARRAYS[target.stem])
        replace(source, target)

    monkeypatch.setattr(os, "replace", replace_whole)
    assert_right(cached_arrays(tmp_path, OUTLINE, Maker()))


def test_of_a_file_that_cannot_be_written_nothing_is_left(tmp_path, monkeypatch):
    def save_half(file, array):
        file.write(array.tobytes()[: array.nbytes // 2])
        file.flush()
        assert not list(tmp_path.glob("*.npy"))
        raise OSError("disk full")

    monkeypatch.setattr(np, "save", save_half)
    with pytest.raises(OSError, match="disk full"):
        cached_arrays(tmp_path, OUTLINE, Maker())
    assert not list(tmp_path.iterdir())


def test_arrays_that_are_not_as_promised_are_an_error(tmp_path):
    with pytest.raises(ValueError, match=r"must hold int32\[100\], got int32\[99\]"):
        cached_arrays(
            tmp_path, OUTLINE, lambda: ARRAYS | {"labels": np.int32([0] * 99)}
        )


def test_the_cache_is_where_the_desktop_standard_says(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_directory("a") == tmp_path / "olsgd_jax" / "a"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_directory("a") == tmp_path / ".cache" / "olsgd_jax" / "a"
