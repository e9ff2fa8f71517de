"""The demo at its smallest size, and the report of any runs."""

import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

from experiments import demo, report
from olsgd_jax import Config, Evaluation, Record, read_records, write_records


def of_consensus(loss, accuracy):
    return {"consensus": Evaluation(loss, accuracy)}


RECORDS = [
    Record(1, 4, 512, 0.1, 2.0, of_consensus(1.9, 0.5), 0.25, 4810.0, 0.125),
    Record(2, 8, 1024, 0.1, 1.0, of_consensus(0.75, 0.875), 0.5, 1234567.0, 0.25),
]


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
        for cell in report.cells(last, demo.FIELDS):
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
        assert cells == report.cells(read_records(path).records[-1])
    figures = re.findall("<figure>.*?</figure>", page, re.DOTALL)
    names = [re.search("<h2>(.*?)</h2>", figure).group(1) for figure in figures]
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


@pytest.fixture
def page_of(tmp_path):
    """Writes a run of each name, and gives the page about all of them."""

    def page_of(runs, title="Runs", config=None):
        files = [tmp_path / f"{name}.jsonl" for name in runs]
        for file, records in zip(files, runs.values(), strict=True):
            write_records(file, config or Config(), records)
        report.write_report(tmp_path / "page.html", files, title)
        return (tmp_path / "page.html").read_text()

    return page_of


def line_of(page, figure, run):
    """The points of a run's line in a figure, left to right."""
    svg = page[page.index(f"<h2>{figure}</h2>") :].split("</svg>")[0]
    path = rf'<path d="([^"]*)"[^>]*stroke: var\(--run-{run}\)'
    lines = re.findall(path, svg)
    points = re.findall(r"[ML] (\S+) (\S+)", lines[0]) if lines else []
    return np.array(points, dtype=float).reshape(-1, 2)


def records_with(**columns):
    [num] = {len(column) for column in columns.values()}
    return [
        RECORDS[0]._replace(**{name: x[i] for name, x in columns.items()})
        for i in range(num)
    ]


def test_lines_are_true_to_scale(page_of):
    accuracy = [0.0, 0.25, 1.0]
    evaluations = [of_consensus(1.0, x) for x in accuracy]
    records = records_with(examples=[0, 100, 300], tests=evaluations)
    x, y = line_of(page_of({"run": records}), "Test accuracy", run=0).T
    # Drawn to six digits; up is less in SVG.
    np.testing.assert_allclose((x - x[0]) / (x[-1] - x[0]), [0, 1 / 3, 1], atol=1e-4)
    np.testing.assert_allclose((y - y[0]) / (y[-1] - y[0]), accuracy, atol=1e-4)
    assert y[-1] < y[0]


def test_spread_is_drawn_to_a_logarithmic_scale(page_of):
    records = records_with(round=[1, 2, 3], spread=[0.1, 0.01, 0.0001])
    _, y = line_of(page_of({"run": records}), "Spread of the workers", run=0).T
    np.testing.assert_allclose((y - y[0]) / (y[-1] - y[0]), [0, 1 / 3, 1], atol=1e-4)


def test_a_run_without_spread_is_named_since_it_has_no_line(page_of):
    runs = {"apart": RECORDS, "equal": records_with(spread=[0.0, 0.0])}
    page = page_of(runs)
    assert len(line_of(page, "Spread of the workers", run=0)) == 2
    assert len(line_of(page, "Spread of the workers", run=1)) == 0
    assert "Zero throughout: equal." in page


def test_more_runs_than_colours_begin_again_with_the_first(page_of):
    page = page_of({f"run{i}": RECORDS for i in range(8)})
    assert page.count('<path d="M0 4H32" stroke="var(--run-0)"') == 4
    assert "var(--run-7)" not in page


def test_everything_that_a_report_shows_is_escaped(page_of):
    config = Config(strategy="<i>&</i>", strategy_args={"<u>": 1.0})
    equal = records_with(spread=[0.0])
    page = page_of({'<b>"&$x$': equal}, title="<s>$title", config=config)
    for raw in ("<b>", "<i>", "<u>", "<s>"):
        assert raw not in page
    assert "&lt;b&gt;&quot;&amp;$x$</th>" in page  # the table's row
    assert "Zero throughout: &lt;b&gt;&quot;&amp;$x$." in page
    assert '>&lt;b&gt;"&amp;$x$</text>' in page  # the bar's name
    assert "<title>&lt;s&gt;$title</title>" in page
    assert "<td>&lt;i&gt;&amp;&lt;/i&gt;</td>" in page
    assert "<td>{&#x27;&lt;u&gt;&#x27;: 1.0}</td>" in page


def test_the_same_records_give_the_same_page(page_of):
    assert page_of({"run": RECORDS}) == page_of({"run": RECORDS})


def test_cells_are_written_for_people():
    expected = ["87.50%", "0.7500", "1.0000", "0.5", "1,234,567", "0.25"]
    assert report.cells(RECORDS[1]) == expected


def test_a_report_is_made_of_the_files_named(tmp_path, monkeypatch, capsys):
    file, page = tmp_path / "run.jsonl", tmp_path / "new" / "page.html"
    write_records(file, Config(), RECORDS)
    monkeypatch.setattr(sys, "argv", ["report", str(file), "--out", str(page)])
    report.main()
    assert capsys.readouterr().out == f"{page}\n"
    assert "87.50%" in page.read_text()


def test_a_report_of_no_runs_or_of_two_by_the_same_name_is_an_error(tmp_path):
    files = [tmp_path / "a" / "run.jsonl", tmp_path / "b" / "run.jsonl"]
    for file in files:
        write_records(file, Config(), RECORDS)
    message = "files must be at least one and differ in name, got "
    with pytest.raises(ValueError, match=message + ".*a/run.jsonl, .*b/run.jsonl"):
        report.write_report(tmp_path / "page.html", files)
    with pytest.raises(ValueError, match=message + "none"):
        report.write_report(tmp_path / "page.html", [])


def test_a_report_of_a_run_without_records_is_an_error(page_of):
    with pytest.raises(ValueError, match="run.jsonl must hold at least one record"):
        page_of({"run": []})
