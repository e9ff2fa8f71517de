"""Of files of records, and of reports about them."""

import json
import os

from experiments import report
from experiments.measured import network_records, timeline_figure
from experiments.paper.runs import name_of, run_all
from olsgd_jax.training import Config, describe, read_records, write_records
from tests.mistakes import run
from tests.pages import RECORDS

CONFIG = Config(num_workers=2, width=4)


def written(tmp):
    file = tmp / "run.jsonl"
    write_records(file, CONFIG, RECORDS, describe(CONFIG))
    return file


def read_changed(number, change):
    """Reads records after a line of them was changed."""

    def mistake(tmp):
        file = written(tmp)
        lines = file.read_text().splitlines()
        row = json.loads(lines[number])
        lines[number] = json.dumps(change(row))
        file.write_text("\n".join(lines) + "\n")
        read_records(file)

    return mistake


def read_bytes(content):
    def mistake(tmp):
        (tmp / "run.jsonl").write_bytes(content)
        read_records(tmp / "run.jsonl")

    return mistake


def header(**changed):
    return read_changed(0, lambda row: {**row, **changed})


def facts(**changed):
    return read_changed(0, lambda row: {**row, "facts": {**row["facts"], **changed}})


def record(**changed):
    return read_changed(1, lambda row: {**row, **changed})


def report_of(name, text):
    def mistake(tmp):
        written(tmp)
        (tmp / name).write_text(text)
        run(report.main, tmp, "--out", tmp / "report.html")

    return mistake


def report_onto(name, out):
    def mistake(tmp):
        written(tmp).rename(tmp / name)
        run(report.main, tmp / name, "--out", tmp / out)

    return mistake


def report_of_a_pipe(tmp):
    written(tmp)
    os.mkfifo(tmp / "pipe.jsonl")
    run(report.main, tmp, "--out", tmp / "report.html")


def same_name_twice(tmp):
    for name in "ab":
        (tmp / name).mkdir()
        written(tmp / name)
    files = [tmp / name / "run.jsonl" for name in "ab"]
    run(report.main, *files, "--out", tmp / "report.html")


def run_of_another(tmp):
    config = Config(width=8)
    write_records(tmp / f"{name_of(config)}.jsonl", config, [])
    run_all([Config(width=4)], tmp, None)


TEST = {"consensus": {"loss": 1.0}}
MISTAKES = {
    "a truncated file": read_bytes(b'{"config"'),
    "a file that is not JSON": read_bytes(b"hello\n"),
    "deeply nested JSON that is truncated": read_bytes(b"[" * 100_000 + b"\n"),
    "a file that contains a number with 5,000 digits": read_bytes(b"1" * 5_000 + b"\n"),
    "a file that is not text": read_bytes(b"\xff\n"),
    "deeply nested JSON": read_bytes(b"[" * 10**5 + b"]" * 10**5 + b"\n"),
    "JSON that is not a record": read_bytes(b'{"loss": 1}\n'),
    "a config with an unknown option": header(config={"tau": 4}),
    "a config with an impossible value": header(config={"num_workers": -1}),
    "facts with other fields": header(facts={"loss": 1}),
    "a fact with text instead of a number": facts(num_steps="many"),
    "an empty histogram": facts(histogram=[]),
    "a histogram with rows of different lengths": facts(histogram=[[1], [1, 2]]),
    "versions in a list": header(versions=[1]),
    "devices as a number": header(devices=3),
    "a record with text instead of a number": record(train_loss="low"),
    "a record with a number that is not finite": record(spread=float("inf")),
    "a record with an accuracy above 1": record(
        tests={"consensus": {"loss": 1.0, "accuracy": 7}}
    ),
    "a record of round −1": record(round=-1),
    "a record with half an example": record(examples=0.5),
    "a record without tests": record(tests={}),
    "a test without its accuracy": record(tests=TEST),
    "a rollback with missing fields": read_changed(
        1, lambda row: {"rollback": {"round": 3}}
    ),
    "an unknown outcome": read_changed(2, lambda row: {"outcome": "won"}),
    "`report` of a directory without records": lambda tmp: run(
        report.main, tmp, "--out", tmp / "report.html"
    ),
    "`report` of a file that does not exist": lambda tmp: run(
        report.main, tmp / "x.jsonl", "--out", tmp / "report.html"
    ),
    "`report` of two files with the same name": same_name_twice,
    "`report run.jsonl --out run.jsonl`": report_onto("run.jsonl", "run.jsonl"),
    "`report run.html --out run.html`": report_onto("run.html", "run.html"),
    "`report run.md --out run.html`": report_onto("run.md", "run.html"),
    "`report` of a directory that contains a named pipe": report_of_a_pipe,
    "`report` with a deeply nested timeline": report_of(
        timeline_figure.TIMELINE, "[" * 100_000
    ),
    "`report` with network records too large to model": report_of(
        network_records.NETWORK, '{"sync_period": 1, "depth": 1000000000}\n'
    ),
    "`report` with a timeline that is not JSON": report_of(
        timeline_figure.TIMELINE, "hello"
    ),
    "`report` with a timeline that has other fields": report_of(
        timeline_figure.TIMELINE, '{"link": 3}'
    ),
    "`report` with network records that are not JSON": report_of(
        network_records.NETWORK, "hello\n"
    ),
    "`report` with network records that have other fields": report_of(
        network_records.NETWORK, '{"rate": 3}\n'
    ),
    "a sweep in a directory that holds a run with other options": run_of_another,
}
