"""Of checkpoints, and of the directory that a run writes to."""

import os

import jax
import jax.numpy as jnp
import numpy as np

from experiments import report, scale, tables, train
from experiments.cli.output import prepare_output
from olsgd_jax.training import Checkpoints, Config, Due, write_records
from olsgd_jax.training.components import build
from olsgd_jax.training.data.array_cache import cached_arrays
from olsgd_jax.training.loop import train as train_config
from olsgd_jax.training.records.provenance import versions
from olsgd_jax.training.records.types import Layout
from olsgd_jax.training.recovery.resume import Progress, compiler_settings, restore
from tests.mistakes import run

TREE, CONFIG = {"w": jnp.zeros(3)}, Config(num_rounds=2, width=4)
LAYOUT = Layout(4, mapping=None, devices="1 x cpu", num_processes=1)
FACTS = {**Progress(round=1)._asdict(), "config": vars(CONFIG), "versions": versions()}
FACTS |= {"layout": LAYOUT._asdict(), "compiler": compiler_settings()}
BACK = {"rollback": {"round": 1, "to": 0, "learning_rate": 0.1}}


def restored(facts=FACTS, like=TREE, config=CONFIG):
    """Goes on from a checkpoint with other facts."""

    def mistake(tmp):
        with Checkpoints(tmp) as checkpoints:
            checkpoints.save(1, TREE, facts)
            components = build(config)._replace(init=lambda: like)
            restore(checkpoints, config, components)

    return mistake


def of_another_loop(tmp):
    with Checkpoints(tmp) as checkpoints:
        checkpoints.save(1, TREE)
        restore(checkpoints, CONFIG, build(CONFIG))


def went_on(**facts):
    """Trains on from a checkpoint of the run with other facts."""

    def mistake(tmp):
        components = build(CONFIG)
        with Checkpoints(tmp) as checkpoints:
            checkpoints.save(1, components.init(), {**FACTS, **facts})
            train_config(CONFIG, components, checkpoints=checkpoints)

    return mistake


def damaged(name, content):
    def mistake(tmp):
        with Checkpoints(tmp) as checkpoints:
            checkpoints.save(1, TREE, score=0.5)
            checkpoints.wait()
            (tmp / "1" / name).write_text(content)
            assert checkpoints.restore(TREE) is None

    return mistake


def not_the_newest(tmp):
    with Checkpoints(tmp) as checkpoints:
        for number in (2, 1):
            checkpoints.save(number, TREE)


def strange(make):
    """Opens a directory with something in it that is no checkpoint."""

    def mistake(tmp):
        make(tmp)
        with Checkpoints(tmp) as checkpoints:
            assert checkpoints.numbers() == []

    return mistake


def prepared(make, *words):
    """Makes room for a run where something is already."""

    def mistake(tmp):
        make(tmp / "run.jsonl")
        args = train.make_parser().parse_args(["--out", str(tmp), *words])
        prepare_output(args)

    return mistake


def below_a_file(module, *words):
    def mistake(tmp):
        (tmp / "file").touch()
        run(module.main, *words, "--out", tmp / "file" / "out")

    return mistake


def report_below_a_file(tmp):
    (tmp / "file").touch()
    write_records(tmp / "run.jsonl", CONFIG, [])
    run(report.main, tmp / "run.jsonl", "--out", tmp / "file" / "report.html")


def cache_below_a_file(tmp):
    (tmp / "file").touch()
    outline = {"x": jax.ShapeDtypeStruct((3,), np.float32)}
    cached_arrays(tmp / "file" / "cache", outline, dict)


OTHER = {**versions(), "jax": "0.4.1"}
FLAGS = {**compiler_settings(), "LIBTPU_INIT_ARGS": "--xla_fast"}
SAME_NAME = {"a.b": jnp.zeros(1), "a": {"b": jnp.zeros(1)}}
CHECKPOINTS = {
    "a checkpoint of another model": restored(like={"w": jnp.zeros(4)}),
    "a checkpoint of another strategy, optimizer or reduction": restored(
        like={"v": jnp.zeros(3)}
    ),
    "a checkpoint of a run with other options": restored(config=Config(width=8)),
    "`train` with a checkpoint of your own loop": of_another_loop,
    "a checkpoint of another version of the library": restored(
        {**FACTS, "config": {"tau": 4}}
    ),
    "a checkpoint of another version of jax (a warning)": went_on(versions=OTHER),
    "a checkpoint of a run with other XLA flags (a warning)": went_on(compiler=FLAGS),
    "resuming a run that was rolled back, without `rollbacks`": went_on(records=[BACK]),
    "a checkpoint without its checksums (a warning)": damaged("checksums.json", ""),
    "a checkpoint with a modified file (a warning)": damaged("about/metadata", "{}"),
    "checksums of files outside the checkpoint (a warning)": damaged(
        "checksums.json", '{"format": 2, "files": {"../../secret": "0"}}'
    ),
    "checksums of missing files (a warning)": damaged(
        "checksums.json", '{"format": 2, "files": {"gone": "0"}}'
    ),
    "checksums without files (a warning)": damaged("checksums.json", "{}"),
    "an unreadable file in a checkpoint (a warning)": damaged(
        "checksums.json", '{"format": 2, "files": {"\\u0000": "0"}}'
    ),
    "an unreadable score in a checkpoint (a warning)": damaged("metrics/metrics", "{"),
    "a directory named `010` among the checkpoints (a warning)": strange(
        lambda tmp: (tmp / "010").mkdir()
    ),
    "a file named `9` among the checkpoints (a warning)": strange(
        lambda tmp: (tmp / "9").touch()
    ),
    "a checkpoint of another format": damaged("checksums.json", '{"format": 3}'),
    "`save('../x', tree)`": lambda tmp: Checkpoints(tmp).save("../x", TREE),
    "`save` with a number below the newest checkpoint": not_the_newest,
    "`Checkpoints(directory, keep=0)`": lambda tmp: Checkpoints(tmp, keep=0),
    "`Due(minutes=0)`": lambda tmp: Due(minutes=0),
    "a tree whose names are equal once joined by dots": lambda tmp: Checkpoints(
        tmp
    ).save(1, SAME_NAME),
}
FILES = {
    "an output directory that already holds a run": prepared(lambda path: path.touch()),
    "a link in the output directory": prepared(
        lambda path: path.symlink_to("/dev/null"), "--resume"
    ),
    "`train --out` with a name that is not UTF-8": lambda tmp: prepare_output(
        train.make_parser().parse_args(["--out", os.fsdecode(b"\xff")])
    ),
    "`tables --out` below a file": below_a_file(tables),
    "`scale --out` below a file": below_a_file(scale, "--num-workers", 2),
    "`report --out` below a file": report_below_a_file,
    "records in a path below a file": lambda tmp: [
        (tmp / "file").touch(),
        write_records(tmp / "file" / "run.jsonl", CONFIG, []),
    ],
    "an array cache in a path below a file": cache_below_a_file,
}
