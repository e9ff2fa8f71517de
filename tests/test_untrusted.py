"""Files from outside: nothing in them is run, followed or shown as it is."""

import ast
import json
import os
import pathlib
from xml.etree import ElementTree

import pytest

from experiments import report, train
from experiments.cli.output import prepare_output
from experiments.measured import timeline_figure
from olsgd_jax.training import Config, write_records
from tests.mistakes import run
from tests.pages import FACTS, RECORDS

ROOT = pathlib.Path(__file__).parents[1]
SOURCES = [
    path
    for name in ("olsgd_jax", "experiments")
    for path in (ROOT / name).rglob("*.py")
]
EVIL = "<script>alert('\"x\"')</script></style><img src=x onerror=y>"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_nothing_can_read_a_pickle(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names]
            names.append(getattr(node, "module", None) or "")
            found = {name.partition(".")[0] for name in names}
            assert not found & {"pickle", "dill", "joblib", "cloudpickle", "shelve"}
        if isinstance(node, ast.keyword):
            assert node.arg != "allow_pickle"
        if isinstance(node, ast.Call):
            assert getattr(node.func, "id", "") not in ("eval", "exec")


def test_a_report_escapes_all_that_records_hold(tmp_path):
    file = tmp_path / "<img src=x>.jsonl"
    config = Config(strategy=EVIL, dataset=EVIL, partition=EVIL, data_dir=EVIL)
    write_records(file, config, RECORDS)
    header, *lines = file.read_text().splitlines()
    facts = {"facts": FACTS, "versions": {EVIL: EVIL}, "commit": EVIL, "devices": EVIL}
    header = json.dumps({**json.loads(header), **facts})
    file.write_text("\n".join([header, *lines, ""]))
    page = tmp_path / "out" / "page.html"
    report.write_report(page, [file], EVIL, tmp_path / "out" / "figures")
    for path in (page, page.with_suffix(".md"), *page.parent.glob("figures/*.svg")):
        text = path.read_text()
        for raw in ("<script", "</script", "</style><", "<img", "onerror=y>"):
            assert raw not in text
    written = {path.parent for path in tmp_path.rglob("*") if path.is_file()}
    assert written == {tmp_path, page.parent, page.parent / "figures"}


def test_a_report_shows_text_that_cannot_be_encoded(tmp_path, capsys):
    directory = tmp_path / os.fsdecode(b"\xff")
    file = directory / os.fsdecode(b"run\xfe\x1b.jsonl")
    write_records(file, Config(strategy="half \ud800"), RECORDS)
    page = directory / "page.html"
    run(report.main, directory, "--out", page, "--title", "\udcff")
    assert "run\N{REPLACEMENT CHARACTER}" in page.read_text(encoding="utf-8")
    assert "half \N{REPLACEMENT CHARACTER}" in page.read_text(encoding="utf-8")
    assert capsys.readouterr().out.endswith("/page.html\n")
    for svg in directory.glob("figures/*.svg"):
        ElementTree.parse(svg)


def test_records_are_kept_when_a_report_is_written_onto_them(tmp_path):
    file, other = tmp_path / "run.jsonl", tmp_path / "other.html"
    write_records(file, Config(), RECORDS)
    before = file.read_bytes()
    other.symlink_to(file)
    for out in (file, other):
        with pytest.raises(ValueError, match="out must "):
            report.write_report(out, [tmp_path])
    assert file.read_bytes() == before


def test_a_timeline_has_as_many_lanes_as_workers_whatever_their_numbers():
    span = {"round": 0, "part": "mean", "start": 0.0, "end": 1.0}
    spans = [{**span, "worker": worker} for worker in (3, 10**9)]
    [axes] = timeline_figure.draw_lanes(spans, until=1.0).axes
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels[1::2] == ["worker 3 sends", "worker 1000000000 sends"]
    assert [bar.get_y() + bar.get_height() / 2 for bar in axes.patches] == [1, 3]


@pytest.mark.parametrize("name", ["run.jsonl", "events", "checkpoints"])
def test_links_in_the_output_directory_are_not_followed(name, tmp_path):
    outside, out = tmp_path / "outside", tmp_path / "out"
    out.mkdir()
    outside.mkdir()
    (outside / "kept").touch()
    (out / name).symlink_to(outside)

    def prepare(*words):
        args = train.make_parser().parse_args(["--out", str(out), *words])
        prepare_output(args)

    with pytest.raises(ValueError, match=f"--out must hold no links, got .*/{name}"):
        prepare("--resume")
    prepare("--overwrite")
    assert os.listdir(out) == []
    assert os.listdir(outside) == ["kept"]
