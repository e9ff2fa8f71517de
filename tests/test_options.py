"""Command lines: every option of a config is there, and is read as what it is."""

import argparse
import dataclasses
import subprocess
import sys

import pytest

from experiments.cli.options import add_config_options, config_options
from olsgd_jax.training import Config


def parse(*words):
    parser = argparse.ArgumentParser()
    add_config_options(parser)
    return config_options(parser.parse_args(words))


def test_options_that_are_not_given_are_not_there():
    assert parse() == {}


def test_every_option_of_a_config_can_be_given():
    parser = argparse.ArgumentParser()
    add_config_options(parser)
    known = {action.dest for action in parser._actions}
    assert {field.name for field in dataclasses.fields(Config)} <= known


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--sync-period", "8"], {"sync_period": 8}),
        (["--learning-rate", "0.5"], {"learning_rate": 0.5}),
        (["--no-reshuffle"], {"reshuffle": False}),
        (["--augment"], {"augment": True}),
        (["--width", "16"], {"width": 16}),
        (["--mapping", "vmap"], {"mapping": "vmap"}),
        (["--decay-epochs", "1.5", "2"], {"decay_epochs": [1.5, 2.0]}),
        (["--evaluate", "worker", "anchor"], {"evaluate": ["worker", "anchor"]}),
        (
            ["--strategy-args", "pullback=0.5", "anchor_momentum=0"],
            {"strategy_args": {"pullback": 0.5, "anchor_momentum": 0}},
        ),
    ],
)
def test_options_are_read_as_what_they_are(words, expected):
    given = parse(*words)
    assert given == expected
    Config(**given)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--mapping", "xmap"], "invalid choice: 'xmap'"),
        (["--strategy-args", "pullback"], "must be NAME=NUMBER, got 'pullback'"),
        (["--strategy-args", "rank=two"], "must be a number after rank=, got 'two'"),
        (["--seed", "x"], "invalid int value: 'x'"),
    ],
)
def test_what_cannot_be_read_is_an_error(words, message, capsys):
    with pytest.raises(SystemExit):
        parse(*words)
    assert message in capsys.readouterr().err


def help_of(**how):
    parser = argparse.ArgumentParser(prog="run")
    add_config_options(parser, **how)
    return " ".join(parser.format_help().split())


def test_help_shows_the_defaults():
    shown = help_of()
    assert "number of workers, m; 4" in shown
    assert "one of digits, cifar10, tiny_shakespeare; digits" in shown
    assert "weight decay of the optimizer; 0.0001" in shown
    assert "crop and flip images at random; no" in shown
    assert "tables show the first; consensus" in shown
    assert "falls to a tenth; none" in shown
    assert "directory of data sets; default: TFDS_DATA_DIR" in shown


def test_help_of_a_command_with_a_preset_shows_no_other_defaults():
    shown = help_of(always_preset=True)
    assert "Defaults are those of the preset." in shown
    assert "number of workers, m --" in shown


def test_options_can_be_left_out():
    parser = argparse.ArgumentParser()
    add_config_options(parser, without=("seed",))
    with pytest.raises(SystemExit):
        parser.parse_args(["--seed", "1"])


@pytest.mark.parametrize("script", ["train", "tables", "tradeoff", "alpha_sweep"])
def test_scripts_explain_themselves(script):
    done = subprocess.run(
        [sys.executable, "-m", f"experiments.{script}", "--help"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert "Question:" in done.stdout
    assert "options of the run:" in done.stdout


@pytest.mark.parametrize("script", ["train", "launch", "plan"])
def test_help_shows_a_command_as_it_is_typed(script):
    done = subprocess.run(
        [sys.executable, "-m", f"experiments.{script}", "--help"],
        check=True,
        capture_output=True,
        text=True,
    )
    run = done.stdout[done.stdout.index("Run:") : done.stdout.index("Cost:")]
    first, second = run.splitlines()
    assert first.endswith(" \\")
    assert second.startswith("             ")
