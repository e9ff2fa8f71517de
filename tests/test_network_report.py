"""What is shown of strategies on a network, of numbers that were made up."""

import json

import numpy as np
import pytest

from experiments import report
from experiments.measured import case_tables, network_tables
from experiments.measured.network_numbers import numbers_of, of_hosts
from experiments.measured.network_records import read, write
from experiments.pages.html_page import to_page
from tests.pages import line_of, relative, run_of, table_after


def samples_of(steps, mean, rounds):
    num = len(rounds)
    return {
        "with": rounds,
        "without": [steps] * num,
        "mean": [mean] * num,
        "one": [0.01] * num,
        "with_cpu": [0.9] * num,
        "without_cpu": [0.5] * num,
        "mean_cpu": [0.1] * num,
        "with_bytes": [1_050_400] * num,
        "without_bytes": [400] * num,
        "mean_bytes": [0] * num,
    }


def record_of(strategy, sync_period, rate, *rounds, num_hosts=2, **options):
    return {
        "num_hosts": num_hosts,
        "rate": rate,
        "strategy": strategy,
        "sync_period": sync_period,
        "repetitions": 3,
        "width": 100,
        "depth": 2,
        "batch_size": 64,
        "payload_bytes": 900_000,
        "expected_bytes": 1_000_000.0,
        "samples": samples_of(1.0, 0.8, [*rounds]),
        "machine": "some, 2 cores",
        "num_cores": 2,
        **options,
    }


RECORDS = [
    record_of("sync_sgd", 1, "1gbit", 1.5, 1.6, 1.7),
    record_of("overlap_local_sgd", 8, "1gbit", 9.0, 9.0, 9.0),
    record_of("overlap_local_sgd", 8, "1gbit", 1.0, 1.25, 1.5),  # measured again
    record_of("overlap_local_sgd", 8, "100mbit", 1.9, 2.0, 2.1),
    record_of("overlap_local_sgd", 8, "10mbit", 3.9, 4.0, 4.1),
    record_of("overlap_local_sgd:stream", 8, "1gbit", 2.0, 2.0, 2.0),
    record_of("overlap_local_sgd", 2, "1gbit", 4.9, 5.0, 5.1),
    record_of("sync_sgd:low_rank:4", 1, "1gbit", 1.9, 2.0, 2.1, num_hosts=4),
]
TITLE = "2 hosts, 20,000 parameters, some, 2 cores"


@pytest.fixture
def page(tmp_path):
    file = tmp_path / "network.jsonl"
    write(file, RECORDS)
    runs = {"run": run_of("slowmo", 2, 0.5)}
    return to_page("", [], report.make_sections(runs, networks=[file]))


def test_utilisation_has_a_row_for_a_sync_period_and_a_column_for_a_bandwidth(page):
    assert table_after(page, f"Utilisation: {TITLE}") == [
        ["Fully synchronous SGD", "1", "—", "—", "62%"],
        ["Overlap Local-SGD", "2", "—", "—", "20%"],
        ["Overlap Local-SGD", "8", "25%", "50%", "80%"],
        ["Overlap Local-SGD, streamed", "8", "—", "—", "50%"],
    ]
    heads = network_tables.section(RECORDS).tables[0].heads
    assert heads == ["Strategy", "τ", "10 Mbit/s", "100 Mbit/s", "1 Gbit/s"]


def test_hosts_that_share_a_core_are_told_so(page):
    title = "Utilisation: 4 hosts, 20,000 parameters, some, 2 cores, 2 hosts on a core"
    assert table_after(page, title) == [["PowerSGD, rank 4", "1", "50%"]]


def test_a_case_has_all_of_its_times(page):
    rows = table_after(page, f">1 Gbit/s, {TITLE}")
    # 50,000 examples are 781.25 rounds of 64, or 48.8 of 8 x 64, on each of two hosts.
    times = ["1,000", "800", "1,600", "600 (500 to 700)", "60%", "1.60", "62%"]
    assert rows[0] == ["Fully synchronous SGD", "1", *times, "625", "400"]
    times = ["1,000", "800", "1,250", "250 (0 to 500)", "25%", "1.25", "80%"]
    assert rows[1] == ["Overlap Local-SGD", "8", *times, "61", "400"]
    assert len(rows[0]) == len(case_tables.TIMES)


def test_a_case_has_its_bytes_beside_those_that_were_expected(page):
    rows = table_after(page, f"Bytes: 1 Gbit/s, {TITLE}")
    sizes = ["900,000", "1,000,000", "1,050,000", "+5.0%"]
    assert rows[0] == ["Fully synchronous SGD", "1", *sizes]
    assert len(rows[0]) == len(case_tables.BYTES)


def test_a_round_lasts_as_long_as_on_the_slowest_host():
    one = {"with": [1.0, 4.0], "with_cpu": [1.0, 2.0], "with_bytes": [10, 20]}
    other = {"with": [3.0, 2.0], "with_cpu": [2.0, 4.0], "with_bytes": [30, 20]}
    joined = of_hosts([one, other])
    assert joined == {"with": [3, 4], "with_cpu": [1.5, 3], "with_bytes": [20, 20]}


def test_exposed_time_is_of_rounds_that_took_turns():
    samples = samples_of(1.0, 3.0, [2.0, 3.0, 5.0])
    samples["without"] = [1.5, 1.0, 2.0]
    numbers = numbers_of(samples)
    assert numbers.exposed == pytest.approx((0.5, 2, 3))
    assert numbers.exposed_percent == pytest.approx(100 * 2 / 1.5)
    assert numbers.of_limit == 1
    assert numbers.utilisation == 0.5


def test_utilisation_is_drawn_over_bandwidth(page):
    across, up = line_of(page, "2 hosts, τ = 8", 1).T
    np.testing.assert_allclose(relative(across), [0, 0.5, 1], atol=1e-3)  # logarithmic
    np.testing.assert_allclose(relative(up), [0, 5 / 11, 1], atol=1e-3)  # 25, 50, 80 %


def test_exposed_time_is_drawn_over_the_sync_period(page):
    across, up = line_of(page, "2 hosts, 1 Gbit/s", 1).T
    assert len(across) == 2
    assert up[0] < up[1]  # 400 and 25 %, from the top


def test_records_are_whole_whenever_they_are_read(tmp_path):
    file = tmp_path / "new" / "network.jsonl"
    write(file, RECORDS[:1])
    write(file, RECORDS)
    assert read(file) == json.loads(json.dumps(RECORDS))
    assert [x.name for x in file.parent.iterdir()] == ["network.jsonl"]


def test_a_report_finds_networks_beside_runs(tmp_path, monkeypatch):
    write(tmp_path / "network.jsonl", RECORDS)
    run = run_of("local_sgd", 2, 0.5)
    (tmp_path / "run.jsonl").write_text("")
    monkeypatch.setattr(
        report, "read_records", lambda file: {"run.jsonl": run}[file.name]
    )
    report.write_report(tmp_path / "page.html", [tmp_path])
    assert f"Utilisation: {TITLE}" in (tmp_path / "page.html").read_text()
