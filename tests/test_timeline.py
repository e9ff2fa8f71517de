"""When parts of a round begin and end, measured and drawn."""

import contextlib
import json
import sys

import jax
import numpy as np
import pytest

from experiments import report, timeline
from experiments.links.hosts import why_not
from experiments.measured import timeline_figure
from experiments.measured.network_work import Work, make_run, start
from experiments.measured.timed_rounds import make_timed_round
from experiments.pages.html_page import to_page
from olsgd_jax import exact, worker_mesh
from tests.pages import bars_of, relative, run_of, table_after

REASON = why_not()


def spans_of(*parts):
    return [
        dict(zip(("worker", "round", "part", "start", "end"), part, strict=True))
        for part in parts
    ]


MEASURED = {
    "link": "<1gbit>",
    "sync_period": 2,
    "num_parameters": 1000,
    "machine": "some",
    "spans": {
        "local_sgd": spans_of(
            (0, 0, "local steps", 0.0, 1.0),
            (0, 0, "mean", 1.0, 1.5),
            (0, 0, "mix", 1.5, 2.0),
            (1, 0, "local steps", 0.25, 1.0),
            (1, 0, "mean", 1.0, 1.5),
            (1, 0, "mix", 1.5, 4.0),
        ),
        "overlap_local_sgd": spans_of(
            (0, 0, "local steps", 0.0, 1.0),
            (0, 0, "mean", 0.0, 0.25),  # of two buckets
            (0, 0, "mean", 0.25, 0.5),
            (0, 0, "mix", 1.0, 1.25),
            (0, 0, "mix", 1.25, 1.5),
        ),
    },
}


@pytest.fixture
def page(tmp_path):
    file = tmp_path / timeline_figure.TIMELINE
    file.write_text(json.dumps(MEASURED))
    runs = {"run": run_of("slowmo", 2, 0.5)}
    return to_page("", [], report.make_sections(runs, [file]))


def test_lanes_are_true_to_scale(page):
    steps, means, mixes = (bars_of(page, "Local SGD", look) for look in range(3))
    # 0.0, 1.0, 1.5 and 2.0 seconds of worker 0
    edges = [*steps[0, :2], means[0, 1], mixes[0, 1]]
    np.testing.assert_allclose(relative(edges), [0, 0.5, 0.75, 1], atol=1e-4)
    # From the top: worker 0 computes, worker 0 sends, worker 1 computes.
    assert steps[0, 2] == mixes[0, 2] < means[0, 2] < steps[1, 2] < means[1, 2]
    np.testing.assert_allclose(np.ptp(steps[1, :2]), 0.75 * np.ptp(steps[0, :2]), 1e-3)


def test_both_figures_have_the_same_scale(page):
    names = ("Local SGD", "Overlap Local-SGD")
    one, other = (np.ptp(bars_of(page, name, 0)[0, :2]) for name in names)
    assert one == pytest.approx(other, rel=0.01)  # names of lanes are the same


def test_a_row_has_medians_over_workers_and_rounds(page):
    rows = table_after(page, "&lt;1gbit&gt; link, τ = 2, 1,000 parameters, some")
    assert rows == [
        ["Local SGD", "875", "500", "1500", "2875"],  # rounds of 2.0 and 3.75 s
        ["Overlap Local-SGD", "1000", "500", "500", "1500"],
    ]


@pytest.mark.parametrize("name", ["sync_sgd", "local_sgd", "overlap_local_sgd"])
def test_a_timed_round_is_the_round_that_it_shows(name):
    work, mesh = Work(name, 3, width=8, depth=2, batch_size=4), worker_mesh(4)
    state, batches = start(work, mesh)
    # Workers differ in their data, so that a mean left out is seen.
    batches = batches * jax.numpy.arange(1.0, 5.0)[:, None, None, None]
    parts = []

    @contextlib.contextmanager
    def note(part):
        yield
        parts.append(part)

    timed, run = make_timed_round(work, mesh, note), make_run(work, exact(), mesh)
    expected, _ = start(work, mesh)
    for _ in range(2):
        state = timed(state, batches)
        expected, _ = run(expected, batches)
    for one, other in zip(state.params, expected.params, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)
    num = 6 if name == "sync_sgd" else 2  # a mean for every step, or every round
    assert parts.count("local steps") == num
    assert parts.count("mean") == parts.count("mix") >= num


def test_a_timeline_is_found_beside_records(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / timeline_figure.TIMELINE).write_text("{}")
    (tmp_path / "in" / "run.jsonl").write_text("")
    assert list(report.find_files([tmp_path / "in"])) == ["run", "timeline"]


@pytest.mark.skipif(REASON is not None, reason=str(REASON))
def test_rounds_on_two_hosts_are_measured(tmp_path, monkeypatch):
    options = ["--link", "1gbit", "--sync-period", "1", "--rounds", "2"]
    monkeypatch.setattr(sys, "argv", ["timeline", *options, "--out", str(tmp_path)])
    timeline.main()
    measured = json.loads((tmp_path / timeline_figure.TIMELINE).read_text())
    for spans in measured["spans"].values():
        found = {(span["worker"], span["round"], span["part"]) for span in spans}
        assert len(found) == 2 * 2 * 3
        assert min(span["start"] for span in spans) == 0
    for worker, number in np.ndindex(2, 2):
        steps, mean, mix = (
            {
                name: [
                    (span["start"], span["end"])
                    for span in spans
                    if (span["worker"], span["round"]) == (worker, number)
                    and span["part"] == part
                ]
                for name, spans in measured["spans"].items()
            }
            for part in timeline_figure.LANES
        )
        # Local SGD sends what its steps made; the other starts both at once.
        assert steps["local_sgd"][0][1] <= mean["local_sgd"][0][0]
        assert mean["local_sgd"][-1][1] <= mix["local_sgd"][0][0]
        overlap = "overlap_local_sgd"
        assert mean[overlap][0][0] < steps[overlap][0][1]
        buckets = zip(mean[overlap], mix[overlap], strict=True)
        for (_, arrived), (mixed, _) in buckets:
            assert max(arrived, steps[overlap][0][1]) <= mixed
