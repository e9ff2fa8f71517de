"""What a report shows of language models."""

import pathlib

import numpy as np
import pytest

from experiments import report
from experiments.cli.progress import _text
from experiments.cli.tensorboard import _scalars
from experiments.language.presets import nanogpt
from experiments.paper import partitions
from olsgd_jax.training import Config, Run, read_records, write_records
from tests.pages import FACTS, RECORDS, line_of, of_consensus, relative, table_after

OF_TEXT = [
    RECORDS[0]._replace(
        examples=10 * (i + 1),
        tokens=640 * (i + 1),
        tests=of_consensus(loss, 0.5),
        sample=f"<b>To be</b>,\n\x07 or not {i}",
    )
    for i, loss in enumerate([3.0, 2.5, 1.0])
]


RESULTS = pathlib.Path(__file__).parents[1] / "results" / "language"


def test_the_recorded_runs_reach_the_loss_of_nanogpt():
    runs = [read_records(file) for file in sorted(RESULTS.glob("nanogpt_cpu-*.jsonl"))]
    assert [run.config["seed"] for run in runs] == [0, 1, 2]
    for run in runs:
        last = run.records[-1]
        assert Config(**run.config) == nanogpt("nanogpt_cpu", seed=run.config["seed"])
        assert (run.outcome, last.step, last.tokens) == ("finished", 2000, 1_536_000)
        assert last.test_loss < 1.88


@pytest.fixture
def page_of(tmp_path):
    def page_of(runs):
        files = [tmp_path / f"{name}.jsonl" for name in runs]
        for file, records in zip(files, runs.values(), strict=True):
            write_records(file, Config(), records)
        report.write_report(tmp_path / "page.html", files)
        return (tmp_path / "page.html").read_text()

    return page_of


def test_the_loss_is_drawn_over_tokens(page_of):
    x, y = line_of(page_of({"run": OF_TEXT}), "Test loss over tokens", run=0).T
    np.testing.assert_allclose(relative(x), [0, 0.5, 1], atol=1e-4)
    np.testing.assert_allclose(relative(y), [0, 0.25, 1], atol=1e-4)


def test_a_table_has_tokens_and_perplexities_of_language_models_alone(page_of):
    text = page_of({"images": RECORDS, "verses": OF_TEXT})
    rows = table_after(text, 'id="language-models"')
    assert rows == [["verses", "1,920", "1.0000", "2.718", "2.0000"]]
    assert "Language models" not in page_of({"images": RECORDS})


def test_the_last_sample_is_shown_line_by_line_and_escaped(page_of, tmp_path):
    text = page_of({"verses": OF_TEXT})
    markdown = (tmp_path / "page.md").read_text()
    lines = "<pre>\n&lt;b&gt;To be&lt;/b&gt;,\n\N{REPLACEMENT CHARACTER} or not 2"
    assert f"{lines}</pre>" in text
    assert f"{lines}\n</pre>" in markdown
    assert "or not 1" not in text


def test_windows_of_a_text_have_no_figure_of_classes():
    config = vars(Config(dataset="verses"))
    facts = {**FACTS, "histogram": [[300], [300]]}
    run = Run(config, facts, {}, None, "1 x cpu", OF_TEXT, [], "finished")
    assert partitions.section([run]) is None


def test_progress_counts_tokens_and_shows_the_perplexity():
    assert _text(OF_TEXT[2]) == "15,360 tokens/s  loss 2.000  perplexity 2.72"


def test_events_hold_tokens_and_perplexity():
    scalars = _scalars(OF_TEXT[2])
    assert scalars["tokens"] == 1920
    assert scalars["test/consensus_perplexity"] == pytest.approx(np.e)
    assert "tokens" not in _scalars(RECORDS[0])
