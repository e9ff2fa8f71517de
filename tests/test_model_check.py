"""The model of time beside rounds that were measured; here they are made up."""

import pytest

from experiments.measured import model_check
from experiments.measured.model_check import network_point
from tests.test_network_report import record_of

# 900,000 bytes, local steps of 1 s a round, a mean of one number of 10 ms. Two hosts
# have a ring of two messages, each of half the bytes. The network has two matrices.
# Of 1514 bytes that a frame takes of the link, 1448 are sent for it.
# The transport takes 0.4 s of CPU time.
BYTES, ONE, CPU = 900_000 / 12.5e6 * 1514 / 1448, 0.01, 0.4


@pytest.mark.parametrize(
    ("strategy", "sync_period", "modelled"),
    [
        ("sync_sgd", 1, 1 + BYTES + 2 * ONE),
        ("sync_sgd:low_rank:2", 1, 1 + BYTES + 2 * ONE),
        ("local_sgd", 8, 1 + BYTES + 2 * ONE),
        ("overlap_local_sgd", 8, 1 + CPU),
        # Eight fragments, none of which overlaps: CPUs overlap nothing in one program.
        ("overlap_local_sgd:stream", 8, 1 + BYTES + 8 * ONE),
    ],
)
def test_a_case_is_modelled_from_its_parts(strategy, sync_period, modelled):
    point = network_point(record_of(strategy, sync_period, "100mbit", 2.0, 2.0, 2.0))
    assert point.modelled == pytest.approx(modelled)
    assert point.ratio == pytest.approx(modelled / 2)


def test_a_ring_of_more_hosts_has_more_messages():
    record = record_of("local_sgd", 8, "100mbit", 2.0, 2.0, num_hosts=4)
    assert network_point(record).modelled == pytest.approx(1 + 1.5 * BYTES + 2 * ONE)


def test_hosts_that_share_a_core_share_what_is_left_of_it():
    record = record_of("cocod_sgd", 8, "100mbit", 2.0, 2.0, num_hosts=4)
    assert network_point(record).modelled == pytest.approx(1 + 2 * CPU)


def test_points_within_a_tenth_are_counted():
    records = [
        record_of("overlap_local_sgd", tau, "1gbit", seconds, seconds)
        for tau, seconds in ((1, 1.4), (2, 1.47), (4, 1.75))
    ]
    records.append(record_of("cocod_sgd", 1, "1gbit", 0.7, 0.7))
    [table] = model_check.section(records, []).tables
    assert table.rows == [
        ["Overlap Local-SGD", "network", "3", "2 (67%)", "0.80 / 0.95 / 1.00"],
        ["CoCoD-SGD", "network", "1", "0 (0%)", "2.00 / 2.00 / 2.00"],
        ["All", "", "4", "2 (50%)", "0.80 / 1.00 / 2.00"],
    ]
    assert model_check.section([], []) is None
