"""The report of any runs: what it shows, and what files it makes."""

import re
import sys

import numpy as np
import pytest

from experiments import report
from experiments.pages import overview
from olsgd_jax.training import Config, Layout, Resumed, write_records
from tests.pages import (
    RECORDS,
    bars_of,
    line_of,
    of_consensus,
    records_with,
    relative,
    table_after,
)


@pytest.fixture
def page_of(tmp_path):
    """Writes a run of each name, and gives the page about all of them."""

    def page_of(runs, title="Runs", configs=None):
        files = [tmp_path / f"{name}.jsonl" for name in runs]
        configs = configs or [Config()] * len(files)
        for file, config, records in zip(files, configs, runs.values(), strict=True):
            write_records(file, config, records)
        report.write_report(tmp_path / "page.html", files, title)
        return (tmp_path / "page.html").read_text()

    return page_of


def test_lines_are_true_to_scale(page_of):
    accuracy = [0.0, 0.25, 1.0]
    evaluations = [of_consensus(1.0, x) for x in accuracy]
    records = records_with(examples=[0, 100, 300], tests=evaluations)
    x, y = line_of(page_of({"run": records}), "Test accuracy", run=0).T
    # Drawn to six digits; up is less in SVG.
    np.testing.assert_allclose(relative(x), [0, 1 / 3, 1], atol=1e-4)
    np.testing.assert_allclose(relative(y), accuracy, atol=1e-4)
    assert y[-1] < y[0]


def test_spread_is_drawn_to_a_logarithmic_scale(page_of):
    records = records_with(round=[1, 2, 3], spread=[0.1, 0.01, 0.0001])
    _, y = line_of(page_of({"run": records}), "Spread of the workers", run=0).T
    np.testing.assert_allclose(relative(y), [0, 1 / 3, 1], atol=1e-4)


def test_bars_are_true_to_scale(page_of):
    runs = {f"run{i}": records_with(bytes_per_step=[10.0 ** (i + 3)]) for i in (0, 1)}
    text = page_of(runs)
    lengths = [np.ptp(bars_of(text, "Communication", run)[0, :2]) for run in (0, 1)]
    assert lengths[1] == pytest.approx(10 * lengths[0], rel=1e-3)


def test_a_run_without_spread_is_named_since_it_has_no_line(page_of):
    runs = {"apart": RECORDS, "equal": records_with(spread=[0.0, 0.0])}
    text = page_of(runs)
    assert len(line_of(text, "Spread of the workers", run=0)) == 2
    assert len(line_of(text, "Spread of the workers", run=1)) == 0
    assert "Zero throughout: equal." in text


def test_more_runs_than_colours_begin_again_with_the_first(page_of):
    text = page_of({f"run{i}": RECORDS for i in range(8)})
    assert len(bars_of(text, "Communication", run=0)) == 2
    assert "var(--run-7)" not in text


def test_many_runs_have_a_folded_table_and_no_figures_of_all(page_of):
    num = overview.MAX_LINES + 1
    text = page_of({f"run{i}": RECORDS for i in range(num)})
    assert "<figure>" not in text
    assert '<details><summary><h2 id="all-runs">' in text
    assert len(table_after(text, 'id="all-runs"')) == num


def test_everything_that_a_report_shows_is_escaped(page_of, tmp_path):
    configs = [Config(strategy="<i>&</i>", strategy_args={"<u>": 1.0})]
    runs = {'<b>"&$x$|](': records_with(spread=[0.0])}
    text = page_of(runs, title="<s>{{ title }}", configs=configs)
    markdown = (tmp_path / "page.md").read_text()
    for raw in ("<b>", "<i>", "<u>", "<s>"):
        assert raw not in text
        assert raw not in markdown
    assert "&lt;b&gt;&#34;&amp;$x$|](</th>" in text  # the table's row
    assert "Zero throughout: &lt;b&gt;&#34;&amp;$x$|](." in text
    assert text.count('>&lt;b&gt;"&amp;$x$|](</text>') == 3  # two legends and a bar
    assert "<title>&lt;s&gt;{{ title }}</title>" in text
    assert "<td>&lt;i&gt;&amp;&lt;/i&gt;</td>" in text
    assert "<td>{&#39;&lt;u&gt;&#39;: 1.0}</td>" in text
    assert '| &lt;b&gt;"&amp;$x$\\|]\\( | ' in markdown


def test_options_that_differ_have_a_row_for_every_run_and_others_stand_once(page_of):
    runs = {"a": RECORDS, "b": RECORDS}
    configs = [Config(seed=0, batch_size=8), Config(seed=1, batch_size=8)]
    text = page_of(runs, configs=configs)
    shared = dict(table_after(text, "Same in all runs"))
    assert shared["batch_size"] == "8"
    assert "seed" not in shared
    assert table_after(text, "Different between runs") == [["a", "0"], ["b", "1"]]
    assert "Different between runs" not in page_of({"a": RECORDS})


def test_the_same_records_give_the_same_page(page_of):
    assert page_of({"run": RECORDS}) == page_of({"run": RECORDS})


def test_cells_are_written_for_people():
    expected = ["87.50%", "0.7500", "1.0000", "0.5", "1,234,567", "0.25"]
    assert overview.cells(RECORDS[1]) == expected


def test_a_report_makes_a_page_its_tables_and_its_figures(
    tmp_path, monkeypatch, capsys
):
    for name in ("a/run", "b/run"):
        write_records(tmp_path / f"in/{name}.jsonl", Config(), RECORDS)
    out = tmp_path / "new" / "page.html"
    monkeypatch.setattr(sys, "argv", ["report", f"{tmp_path}/in", "--out", str(out)])
    report.main()
    assert capsys.readouterr().out == f"{out}\n"
    assert "a/run</th><td>87.50%</td>" in out.read_text()
    markdown = out.with_suffix(".md").read_text()
    assert "| b/run | 87.50% | " in markdown
    images = re.findall(r"!\[.*?\]\((.*?)\)", markdown)
    assert len(images) == out.read_text().count("<figure>") == 4
    for image in images:
        assert "<svg" in (out.parent / image).read_text()
        png = (out.parent / image).with_suffix(".png").read_bytes()
        assert png.startswith(b"\x89PNG")


def test_sources_without_runs_or_with_two_by_the_same_name_are_errors(tmp_path):
    files = [tmp_path / "a" / "run.jsonl", tmp_path / "b" / "run.jsonl"]
    for file in files:
        write_records(file, Config(), RECORDS)
    with pytest.raises(ValueError, match="must differ in name, got .*, .*b/run.jsonl"):
        report.write_report(tmp_path / "page.html", files)
    with pytest.raises(ValueError, match="at least one file of records, got none"):
        report.write_report(tmp_path / "page.html", [])


def test_a_change_of_workers_is_shown(page_of):
    before = Layout(16, None, "16 x cpu", 1)
    change = Resumed(1, before, before._replace(num_workers=8))
    text = page_of({"elastic": [RECORDS[0], change, RECORDS[1]], "other": RECORDS})
    assert table_after(text, "Runs that changed layout") == [
        ["elastic", "1", "8 workers instead of 16"]
    ]
    assert table_after(text, 'id="all-runs"')[0][1] == "87.50%"
    assert "changed layout" not in page_of({"other": RECORDS})


def test_a_run_without_records_has_a_row_and_no_line(page_of):
    text = page_of({"empty": [], "run": RECORDS})
    assert table_after(text, 'id="all-runs"')[0] == ["empty", *["—"] * 6, "finished"]
    assert len(bars_of(text, "Communication", run=0)) == 1
