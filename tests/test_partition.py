"""Partitions: every example is one worker's, in the proportions asked for."""

import inspect

import numpy as np
import pytest

from olsgd_jax.training import (
    PARTITIONS,
    label_histogram,
    load_dataset,
    make_partition,
    partition_dirichlet,
    partition_iid,
    partition_paper_non_iid,
)

LABELS = np.random.default_rng(0).integers(0, 10, 2003)  # not a multiple of 16
# Classes in the order in which CIFAR-10's training file has them first: frog, truck ...
CIFAR10_ORDER = [6, 9, 4, 1, 2, 7, 8, 3, 5, 0]


@pytest.mark.parametrize("name", PARTITIONS)
@pytest.mark.parametrize("num_workers", [1, 3, 16])
def test_no_example_has_two_workers_and_few_have_none(name, num_workers):
    labels = np.zeros_like(LABELS) if num_workers < 16 else LABELS  # enough of a class
    shards = make_partition(name, labels, num_workers, seed=1)
    everything = np.concatenate(shards)
    assert len(shards) == num_workers
    assert len(set(everything)) == len(everything)
    assert set(everything) <= set(range(len(labels)))
    left_out = 0 if name == "dirichlet" else len(labels) % num_workers
    assert len(everything) == len(labels) - left_out


@pytest.mark.parametrize("name", ["iid", "contiguous", "paper_non_iid"])
def test_workers_have_equally_many_examples(name):
    shards = make_partition(name, LABELS, 16, seed=1)
    assert [len(shard) for shard in shards] == [len(LABELS) // 16] * 16


@pytest.mark.parametrize("name", sorted(PARTITIONS.keys() - {"contiguous"}))
def test_a_partition_is_fixed_by_its_seed(name):
    def examples(seed):
        return [set(x.tolist()) for x in make_partition(name, LABELS, 16, seed)]

    assert examples(7) == examples(7)
    assert all(a != b for a, b in zip(examples(7), examples(8), strict=True))


@pytest.mark.parametrize("name", PARTITIONS)
def test_more_workers_than_examples_are_an_error(name):
    with pytest.raises(ValueError, match="got 5 workers and 4 examples"):
        make_partition(name, np.arange(4), 5, seed=0)
    with pytest.raises(ValueError, match="num_workers must be at least 1, got 0"):
        make_partition(name, np.arange(4), 0, seed=0)


def test_an_unknown_partition_is_an_error_with_the_known_ones():
    with pytest.raises(ValueError, match="one of iid, contiguous, paper_non_iid, diri"):
        make_partition("halves", LABELS, 2, seed=0)


def test_names_stand_for_their_functions():
    for name, expected in {
        "iid": partition_iid(len(LABELS), 16, seed=3),
        "paper_non_iid": partition_paper_non_iid(LABELS, 16, seed=3),
        "dirichlet": partition_dirichlet(LABELS, 16, concentration=2.0, seed=3),
    }.items():
        shards = make_partition(name, LABELS, 16, seed=3, concentration=2.0)
        for ours, theirs in zip(shards, expected, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_the_papers_workers_have_2000_of_3125_examples_of_one_class(real_cifar10):
    labels = real_cifar10.train_labels
    shards = partition_paper_non_iid(labels, 16, seed=0)
    np.testing.assert_array_equal(np.sort(np.concatenate(shards)), np.arange(50_000))
    counts = label_histogram(labels, shards, 10)
    numbers = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 3, 5, 7, 9, 2]
    majors = [CIFAR10_ORDER[number] for number in numbers]
    assert counts.argmax(1).tolist() == majors
    # Of the other 1,125 some are of the major class by chance: 0 to 300 or so.
    extra = counts[range(16), majors] - 2000
    assert counts.sum(1).tolist() == [3125] * 16
    assert (extra >= 0).all()
    assert (extra < 300).all()
    # Each class is dealt out whole.
    assert counts.sum(0).tolist() == [5000] * 10


def test_what_is_left_of_the_papers_split_is_dealt_at_random(real_cifar10):
    labels = real_cifar10.train_labels
    shards = partition_paper_non_iid(labels, 16, seed=0)
    rest = label_histogram(labels, [shard[2000:] for shard in shards], 10)
    # 3,000 or 1,000 of a class are left for 16 workers; 5 deviations of a share.
    share = rest.sum(0) / 16
    assert set(rest.sum(0)) == {1000, 3000}
    assert (np.abs(rest - share) < 5 * np.sqrt(share)).all()


def test_major_classes_are_numbered_by_first_appearance_and_used_again():
    labels = np.array([7, 3, 3, 7] * 250)
    counts = label_histogram(labels, partition_paper_non_iid(labels, 5, seed=0), 8)
    assert counts.argmax(1).tolist() == [7, 3, 7, 3, 7]


def test_a_class_with_too_few_examples_is_an_error():
    labels = load_dataset("digits").train_labels
    message = (
        "leave 230 examples of class . to worker 0, got 4 workers and 14. examples"
    )
    with pytest.raises(ValueError, match=message):
        partition_paper_non_iid(labels, 4, seed=0)
    assert len(partition_paper_non_iid(labels, 16, seed=0)) == 16


@pytest.mark.parametrize(
    ("partition", "options"),
    [(partition_paper_non_iid, {}), (partition_dirichlet, {"concentration": 0.5})],
)
def test_labels_that_are_no_whole_numbers_are_an_error(partition, options):
    deal = inspect.unwrap(partition)  # without the type check of the tests
    with pytest.raises(TypeError, match="labels must be whole numbers, got an array"):
        deal(np.array([0.0, np.nan] * 20), num_workers=2, seed=0, **options)


def test_a_smaller_concentration_gives_more_skewed_classes():
    def skew(concentration):  # from 1/16, all equal, to 1, one worker per class
        shards = partition_dirichlet(LABELS, 16, concentration, seed=0)
        counts = label_histogram(LABELS, shards, 10)
        return (counts.max(0) / counts.sum(0)).mean()

    skews = [skew(concentration) for concentration in (0.01, 0.5, 10.0, 1e6)]
    assert skews == sorted(skews, reverse=True)
    assert skews[0] > 0.8
    np.testing.assert_allclose(skews[-1], 1 / 16, atol=0.01)


def test_the_parts_of_a_class_have_the_variance_of_a_dirichlet():
    # A share p has mean 1 / m and variance (1 / m) (1 − 1 / m) / (m c + 1).
    labels, m, c = np.repeat(np.arange(400), 200), 4, 0.5
    shards = partition_dirichlet(labels, m, c, seed=0)
    shares = label_histogram(labels, shards, 400) / 200
    np.testing.assert_allclose(shares.mean(1), 1 / m, atol=0.05)
    np.testing.assert_allclose(
        shares.var(1), (1 / m) * (1 - 1 / m) / (m * c + 1), rtol=0.2
    )


def test_the_examples_of_a_class_are_dealt_at_random():
    shards = partition_dirichlet(np.zeros(1000, int), 4, concentration=100.0, seed=0)
    # A share of near 250 has a mean place of 499.5, and a deviation of it of 16.
    np.testing.assert_allclose([x.mean() for x in shards], 499.5, atol=80)


def test_nobody_is_left_without_an_example():
    shards = partition_dirichlet(np.zeros(20, int), 20, concentration=1e-3, seed=0)
    assert [len(shard) for shard in shards] == [1] * 20


@pytest.mark.parametrize("concentration", [0.0, -1.0, np.inf])
def test_a_concentration_that_is_no_positive_number_is_an_error(concentration):
    with pytest.raises(ValueError, match="concentration must be in"):
        partition_dirichlet(LABELS, 4, concentration, seed=0)


def test_the_histogram_counts_classes_that_nobody_has():
    counts = label_histogram(np.array([1, 1, 0]), [np.array([0, 1]), np.array([2])], 4)
    assert counts.tolist() == [[0, 2, 0, 0], [1, 0, 0, 0]]
