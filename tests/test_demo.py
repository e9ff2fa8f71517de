"""The demo at its smallest size."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest
from rich.console import Console

from experiments import demo
from experiments.links import loopback
from experiments.links.modelled_link import modelled, modelled_spans, ring
from experiments.measured import exposed_time
from experiments.measured.exposed_time import SLOW_LINK
from experiments.measured.slow_link import (
    DEPTH,
    MEAN_SECONDS,
    RATES,
    STRATEGIES,
    width_for,
)
from experiments.pages import overview
from experiments.report import write_report
from olsgd_jax.timing import round_time
from olsgd_jax.training import read_records
from tests.pages import bars_of, svg_of, table_after

REASON = loopback.why_not()


@pytest.fixture(scope="module")
def demo_run(tmp_path_factory):
    """The files of a run in a process of its own, and what it printed."""
    out = tmp_path_factory.mktemp("demo")
    options = ["--rounds", "6", "--seed", "3", "--out", str(out)]
    options += ["--rate", "50mbit", "--repetitions", "2", "--sync-period", "2"]
    done = subprocess.run(
        [sys.executable, "-m", "experiments.demo", *options],
        check=True,
        capture_output=True,
        text=True,
        cwd=pathlib.Path(__file__).parents[1],
        env={**os.environ, "COLUMNS": "80"},
    )
    return out, done.stdout


def test_the_demo_trains_three_strategies_on_the_same_examples(demo_run):
    out, _ = demo_run
    runs = [read_records(path) for path in sorted(out.glob("*.jsonl"))]
    strategies = [run.config.pop("strategy") for run in runs]
    assert strategies == ["local_sgd", "overlap_local_sgd", "sync_sgd"]
    for run in runs:
        run.config.pop("strategy_args")
        assert run.config == runs[0].config
        assert run.config["seed"] == 3
        assert [record.round for record in run.records] == [5, 6]


def test_the_demo_makes_a_device_for_each_of_its_workers(demo_run):
    out, _ = demo_run
    assert read_records(out / "sync_sgd.jsonl").devices == "4 x cpu"


def test_the_demo_prints_its_table_and_where_the_report_is(demo_run):
    out, printed = demo_run
    for path in out.glob("*.jsonl"):
        last = read_records(path).records[-1]
        [row] = [x for x in printed.splitlines() if f"│ {path.stem} " in x]
        for cell in overview.cells(last, demo.FIELDS):
            assert f" {cell} " in row
    assert str(out / "report.html") in printed


def test_the_demo_says_what_is_wrong_with_its_options(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["demo", "--rounds", "0"])
    with pytest.raises(SystemExit):
        demo.main()
    assert "num_rounds must be at least 1, got 0" in capsys.readouterr().err


def test_the_report_shows_the_last_record_and_four_figures_of_every_run(demo_run):
    out, _ = demo_run
    page = (out / "report.html").read_text()
    for path in out.glob("*.jsonl"):
        row = page[page.index(f"{path.stem}</th><td>") :].split("</tr>")[0]
        cells = re.findall("<td>(.*?)</td>", row)
        last = overview.cells(read_records(path).records[-1])
        assert cells == [*last, "finished"]
    figures = re.findall("<figure>.*?</figure>", page, re.DOTALL)
    names = [re.search("<h3>(.*?)</h3>", figure).group(1) for figure in figures]
    assert re.fullmatch("Who computes and who communicates, (meas|model).*", names[0])
    assert names[1:] == [
        "Test accuracy",
        "Train loss",
        "Spread of the workers",
        "Communication",
    ]


def test_the_report_needs_nothing_but_itself(demo_run):
    out, _ = demo_run
    page = (out / "report.html").read_text()
    assert not re.findall(r'(?:src|href)="(?!#)[^"]*"|url\((?!#)', page)


def found_in(out):
    return json.loads((out / SLOW_LINK).read_text())


@pytest.mark.skipif(REASON is not None, reason=str(REASON))
def test_two_processes_send_over_a_real_link(demo_run):
    found = found_in(demo_run[0])
    assert (found["how"], found["link"], found["sync_period"]) == (
        "measured", "50mbit", 2
    )  # fmt: skip
    # A link is never faster than its rate, but for what a shaper lets pass at once.
    alone = ring("50mbit").seconds(4 * found["num_parameters"], 2)
    assert min(found["mean"]) > 0.85 * alone
    times = exposed_time.exposed_times(found)
    assert list(times) == list(STRATEGIES)
    assert times["sync_sgd"].exposed > 1.5 * 0.85 * alone  # two means
    assert times["sync_sgd"].round > times["overlap_local_sgd"].round
    for spans in found["spans"].values():
        kinds = {(x["worker"], x["part"]) for x in spans}
        assert {(i, x) for i in (0, 1) for x in ("local steps", "mean")} <= kinds
        means = [x["end"] - x["start"] for x in spans if x["part"] == "mean"]
        num_rounds = 1 + max(x["round"] for x in spans)
        assert sum(means) / 2 / num_rounds > 0.85 * alone


def seconds_together(spans, worker, number):
    """How long a worker's mean of a round and its local steps ran concurrently."""
    steps, means = (
        [
            (x["start"], x["end"])
            for x in spans
            if (x["worker"], x["round"], x["part"]) == (worker, number, part)
        ]
        for part in ("local steps", "mean")
    )
    return sum(
        max(0.0, min(end, until) - max(start, since))
        for start, end in steps
        for since, until in means
    ), min(sum(end - start for start, end in part) for part in (steps, means))


@pytest.mark.skipif(REASON is not None, reason=str(REASON))
def test_the_timeline_shows_which_strategy_communicates_while_it_computes(demo_run):
    for name, spans in found_in(demo_run[0])["spans"].items():
        for worker, number in {(x["worker"], x["round"]) for x in spans}:
            together, possible = seconds_together(spans, worker, number)
            if name == "overlap_local_sgd":
                assert together > 0.5 * possible > 0
            else:
                assert together == 0 < possible


def test_all_of_a_link_is_printed_in_80_columns_and_stands_in_the_page(demo_run):
    out, printed = demo_run
    found, page = found_in(out), (out / "report.html").read_text()
    rows = table_after(page, exposed_time.title_of(found))
    times = exposed_time.exposed_times(found)
    assert rows == [exposed_time.row(*x) for x in times.items()]
    lines = printed.splitlines()
    for row in rows:
        [line] = [x for x in lines if f"│ {row[0]} " in x]
        assert line.replace("│", " ").split() == " ".join(row).split()
    assert all(len(x) <= 80 for x in lines if not x.startswith(("Report", "There")))
    assert " ".join(printed.split()).endswith(exposed_time.headline(found))
    assert exposed_time.headline(found) in page
    until = max(x["end"] for spans in found["spans"].values() for x in spans)
    bars = bars_of(page, f"Who computes and who communicates, {found['how']}", 1)
    means = [
        x for spans in found["spans"].values() for x in spans if x["part"] == "mean"
    ]
    assert len(bars) == len(means) > 0
    for bar, mean in zip(bars, means, strict=True):
        left, right, _ = (bar - bars[0, 0]) / (bars[0, 1] - bars[0, 0])
        scale = means[0]["end"] - means[0]["start"]
        assert left * scale == pytest.approx(
            mean["start"] - means[0]["start"], abs=0.01 * until
        )
        assert (right - left) * scale == pytest.approx(
            mean["end"] - mean["start"], abs=0.01 * until
        )


def test_without_a_link_it_is_modelled_and_says_so(demo_run, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))  # no programs at all
    console = Console(record=True, width=80)
    file = demo.use_link(tmp_path, "50mbit", 2, 2, console)
    printed = " ".join(console.export_text().split())
    assert "There can be no slow link here: " in printed
    assert "It is modelled instead." in printed
    assert "50mbit link (modelled), τ = 2" in printed
    found = json.loads(file.read_text())
    assert "not on the PATH: unshare, nsenter, ip, tc; install iproute2" in found["why"]
    times = exposed_time.exposed_times(found)
    mean = ring("50mbit").seconds(4 * found["num_parameters"], 2)
    assert found["mean"] == [mean]
    assert times["local_sgd"].exposed == pytest.approx(mean)
    assert times["sync_sgd"].exposed == pytest.approx(2 * mean)
    own = times["overlap_local_sgd"]
    assert own.exposed == pytest.approx(max(0, mean - own.without))
    headline = exposed_time.headline(found)
    assert headline.startswith("Modelled, not measured: ")
    page = tmp_path / "report.html"
    write_report(page, [demo_run[0] / "sync_sgd.jsonl", file])
    text = page.read_text()
    assert headline in text
    assert "Who computes and who communicates, modelled" in text
    assert "Why there was no slow link: these programs are not" in text
    figure = svg_of(text, "Who computes and who communicates, modelled")
    assert ">mean</text>" in figure
    assert ">mix</text>" not in figure  # it is not modelled


def times_of(how, **rounds):
    return {
        "how": how,
        "mean": [0.2, 0.5, 0.4],
        "rounds": {
            name: {"with": [own], "without": [without]}
            for name, (own, without) in rounds.items()
        },
    }


@pytest.mark.parametrize(
    ("how", "overlap", "expected"),
    [
        (
            "measured", (0.612, 0.6),
            "Overlap Local-SGD hid 97% of its communication: 0.61 s a round, where "
            "Local SGD took 1.00 s and synchronous SGD 4.00 s.",
        ),
        (
            "measured", (0.59, 0.6),
            "Overlap Local-SGD hid 100% of its communication: 0.59 s a round, where "
            "Local SGD took 1.00 s and synchronous SGD 4.00 s.",
        ),
        (
            "measured", (0.9, 0.6),
            "Overlap Local-SGD did not hide its communication (only 25% of it): 0.90 s "
            "a round, where Local SGD took 1.00 s and synchronous SGD 4.00 s.",
        ),
        (
            "modelled", (1.2, 0.6),
            "Modelled, not measured: Overlap Local-SGD would not hide its "
            "communication (only 0% of it): 1.20 s a round, where Local SGD would take "
            "1.00 s and synchronous SGD 4.00 s.",
        ),
    ],
)  # fmt: skip
def test_the_last_line_says_what_was_seen_either_way(how, overlap, expected):
    found = times_of(
        how, sync_sgd=(4.0, 0.6), local_sgd=(1.0, 0.6), overlap_local_sgd=overlap
    )
    assert exposed_time.headline(found) == expected


@pytest.mark.parametrize(("seconds", "is_noise"), [(0.6, False), (0.5, True)])
def test_a_time_below_zero_is_called_noise(seconds, is_noise):
    found = times_of("measured", overlap_local_sgd=(seconds, 0.6))
    assert ("negative exposed time is noise" in exposed_time.remark(found)) == is_noise


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("step", [0.001, 0.5])  # the mean takes longer, or less long
def test_modelled_lanes_end_when_the_model_says(strategy, step):
    setting = modelled(strategy, step, sync_period=4, rate="100mbit", num_bytes=10**6)
    spans = modelled_spans(setting, 3)
    end = max(x["end"] for x in spans)
    assert end == pytest.approx(3 * round_time(setting).seconds)
    steps = [x["end"] - x["start"] for x in spans if x["part"] == "local steps"]
    assert sum(steps) == pytest.approx(2 * 3 * 4 * step)


@pytest.mark.parametrize("rate", [*RATES, "200mbit"])
def test_a_mean_takes_about_as_long_at_every_rate(rate):
    num_bytes = 4 * DEPTH * width_for(rate) ** 2
    assert ring(rate).seconds(num_bytes, 2) == pytest.approx(MEAN_SECONDS, rel=0.2)
