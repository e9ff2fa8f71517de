"""Files from outside: nothing in them is run, followed or shown as it is."""

import ast
import json
import os
import pathlib

import pytest

from experiments import report, train
from experiments.cli.output import prepare_output
from olsgd_jax.training import Config, write_records
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
