"""What the host driver hides of a slow link."""

import pytest

from experiments import hiding
from experiments.links.hosts import why_not

REASON = why_not()


@pytest.mark.skipif(REASON is not None, reason=str(REASON))
def test_a_case_is_measured_on_two_hosts():
    samples = hiding.run_case("1gbit", 1, repetitions=2, reduction="int8")
    kinds = {f"{kind}{x}" for kind in ("with", "without", "mean") for x in ("", "_cpu")}
    assert kinds < samples.keys()
    assert all(len(values) == 2 for values in samples.values())


def test_a_row_says_what_was_hidden():
    samples = {
        "with": [1.1, 1.2, 1.3],
        "without": [1.0, 1.0, 1.0],
        "mean": [0.8, 0.8, 0.8],
        "one": [0.01] * 3,
        "with_cpu": [1.0] * 3,
        "without_cpu": [0.9] * 3,
        "mean_cpu": [0.1] * 3,
        "with_bytes": [10] * 3,
        "without_bytes": [2] * 3,
    }
    row = hiding.row(samples, "1kbit")
    times = ["1000", "800", "1200", "200 (100 to 300)", "75%", "1.20", "100"]
    # 8 bytes at 1 kbit a second, less the headers of frames: 64 ms and 5 % of it.
    assert row == [*times, "0.00", "67"]
    assert len(hiding.HEADS) == 3 + len(row)
