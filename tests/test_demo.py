"""The demo at its smallest size."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

from experiments import demo
from experiments.reporting import overview
from olsgd_jax import read_records


@pytest.fixture(scope="module")
def demo_run(tmp_path_factory):
    """The files of a run in a process of its own, and what it printed."""
    out = tmp_path_factory.mktemp("demo")
    options = ["--rounds", "6", "--seed", "3", "--out", str(out)]
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
    assert names == [
        "Test accuracy",
        "Train loss",
        "Spread of the workers",
        "Communication",
    ]


def test_the_report_needs_nothing_but_itself(demo_run):
    out, _ = demo_run
    page = (out / "report.html").read_text()
    assert not re.findall(r'(?:src|href)="(?!#)[^"]*"|url\((?!#)', page)
