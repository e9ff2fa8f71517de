"""Streams: pass after pass over a shard, and any part of them at once."""

import numpy as np
import pytest

from olsgd_jax import worker_mesh
from olsgd_jax.training import make_batches
from olsgd_jax.training.data.batches import make_stream


@pytest.mark.parametrize("reshuffle", [True, False])
def test_every_pass_goes_once_through_the_shard(reshuffle):
    passes = make_stream(7, seed=0, worker=0, reshuffle=reshuffle)(0, 70).reshape(10, 7)
    assert (np.sort(passes) == np.arange(7)).all()


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


def batches_of(**options):
    labels = np.arange(24, dtype=np.int32)
    shards = list(labels.reshape(4, 6))
    sizes = {"sync_period": 3, "batch_size": 2, "seed": 0}
    return make_batches({"labels": labels}, shards, **sizes, **options)


def test_a_long_first_round_takes_one_step_more_of_the_same_stream():
    plain, long = batches_of(), batches_of(long_first_round=True)

    def stream(batches):
        rounds = [np.asarray(batches(i)["labels"]).reshape(4, -1) for i in range(3)]
        return np.concatenate(rounds, axis=1)

    assert long(0)["labels"].shape == (4, 4, 2)
    assert long(1)["labels"].shape == (4, 3, 2)
    np.testing.assert_array_equal(stream(long)[:, :18], stream(plain))


def test_a_slot_of_the_mesh_gets_the_batches_of_all_its_workers():
    in_lanes = batches_of()(1)["labels"]
    on_two = batches_of(mesh=worker_mesh(2))(1)["labels"]
    np.testing.assert_array_equal(on_two, in_lanes)
    assert {shard.data.shape for shard in on_two.addressable_shards} == {(2, 3, 2)}
