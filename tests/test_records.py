"""Records: what is read is what was written, and nothing else is read."""

import json

import numpy as np
import pytest

from olsgd_jax.training import (
    Config,
    Evaluation,
    Record,
    describe,
    read_records,
    write_records,
)

CONFIG = Config(strategy="slowmo", seed=7)
TESTS = {"consensus": Evaluation(0.25, 0.9), "worker": Evaluation(1 / 7, 1.0)}
RECORDS = [
    Record(10, 40, 5120, 0.1, 1 / 3, TESTS, 1e-30, 4810.0, 0.1),
    Record(20, 80, 10240, 0.01, 0.1, TESTS, 0.0, 4810.0, 0.2),
]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "new" / "run.jsonl"


def test_what_is_read_is_what_was_written_to_the_last_bit(path):
    write_records(path, CONFIG, RECORDS)
    run = read_records(path)
    assert run.records == RECORDS
    assert Config(**run.config) == CONFIG


def test_the_first_line_says_what_ran(path):
    write_records(path, CONFIG, [])
    first = json.loads(path.read_text().splitlines()[0])
    assert Config(**first["config"]) == CONFIG
    assert first["config"]["seed"] == 7
    packages = {"python", "jax", "jaxlib", "flax", "optax", "numpy", "olsgd_jax"}
    assert packages <= first["versions"].keys()
    assert first["devices"] == "16 x cpu"
    assert "commit" in first


def test_every_record_is_in_the_file_before_the_next_is_asked_for(path):
    def watched():
        for i, record in enumerate(RECORDS):
            assert read_records(path).records == RECORDS[:i]
            yield record

    write_records(path, CONFIG, watched())


@pytest.mark.parametrize(
    ("error", "outcome"), [(FloatingPointError, "diverged"), (KeyboardInterrupt, None)]
)
def test_a_run_that_diverges_or_is_stopped_leaves_its_records(path, error, outcome):
    def failing():
        yield RECORDS[0]
        raise error

    with pytest.raises(error):
        write_records(path, CONFIG, failing())
    run = read_records(path)
    assert run.records == RECORDS[:1]
    assert run.outcome == outcome


def test_a_run_that_came_to_its_end_says_so(path):
    write_records(path, CONFIG, RECORDS)
    assert read_records(path).outcome == "finished"
    path.write_text(path.read_text().replace("finished", "lost"))
    with pytest.raises(ValueError, match="outcome must be one of finished, diverged"):
        read_records(path)


def test_what_follows_from_the_config_is_kept(path):
    write_records(path, CONFIG, RECORDS, describe(CONFIG))
    facts = read_records(path).facts
    assert facts["num_parameters"] == 4810
    assert np.sum(facts["histogram"]) == 1440


def test_what_a_worker_sends_is_kept_with_the_reduction(path):
    config = Config(strategy="overlap_local_sgd", reduction="bfloat16")
    write_records(path, config, [], describe(config))
    run = read_records(path)
    assert run.config["reduction"] == "bfloat16"
    # 4,810 numbers in two bytes each, and two more that fill up the shards of 4 workers
    assert run.facts["bytes_per_round"] == 2 * (4810 + 2)


def test_a_file_is_made_anew(path):
    write_records(path, CONFIG, RECORDS)
    write_records(path, CONFIG, RECORDS[1:])
    assert read_records(path).records == RECORDS[1:]


def test_a_record_that_is_not_finite_is_refused(path):
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_records(path, CONFIG, [RECORDS[0]._replace(spread=float("nan"))])


@pytest.mark.parametrize("num_characters", [0, 1, 30, -1])
def test_a_file_that_is_cut_off_is_an_error(path, num_characters):
    write_records(path, CONFIG, RECORDS)
    path.write_text(path.read_text()[:num_characters])
    with pytest.raises(ValueError, match="run.jsonl must end with a whole line"):
        read_records(path)


def append(path, line):
    """A file with a header, and this line after it."""
    write_records(path, CONFIG, [])
    header = path.read_text().splitlines()[0]
    path.write_text(f"{header}\n{line}\n")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("round 10", "run.jsonl, line 2 must be JSON, got 'round 10'"),
        ("[1, 2]", r"run.jsonl, line 2 must hold round, step, .*, got \[1, 2\]"),
        ('{"round": 1}', "run.jsonl, line 2 must hold round, step, .*, got round"),
    ],
)
def test_a_line_that_is_no_record_is_an_error(path, line, message):
    append(path, line)
    with pytest.raises(ValueError, match=message):
        read_records(path)


def test_a_first_line_that_is_no_header_is_an_error(path):
    write_records(path, CONFIG, RECORDS)
    path.write_text(path.read_text().split("\n", 1)[1])
    with pytest.raises(ValueError, match="line 1 must hold config, facts, versions"):
        read_records(path)


@pytest.mark.parametrize(
    ("value", "kind", "message"),
    [
        ("high", TypeError, "line 2: spread must be a number, got 'high'"),
        (float("inf"), ValueError, r"line 2: spread must be in \[0, inf\), got inf"),
    ],
)
def test_a_value_that_is_no_finite_number_is_an_error(path, value, kind, message):
    write_records(path, CONFIG, RECORDS)
    row = json.loads(path.read_text().splitlines()[1])
    append(path, json.dumps({**row, "spread": value}))
    with pytest.raises(kind, match=message):
        read_records(path)
