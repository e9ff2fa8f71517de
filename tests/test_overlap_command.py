"""The command that compiles for targets: its errors, its JSON, its exit status."""

import importlib.util
import json
import os
import subprocess
import sys

import pytest

NUM_PARAMETERS = 3073 * 2048 + 3 * 2049 * 2048 + 2049 * 10
COMPILER = importlib.util.find_spec("jax_cuda13_plugin") is not None


def run(*arguments):
    command = [sys.executable, "-m", "olsgd_jax.overlap", *arguments]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    return subprocess.run(command, capture_output=True, text=True, env=environment)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--target", "p100"), "target must be one of a100"),
        (("--strategy", "adam"), "strategy must be one of sync_sgd, local_sgd"),
        (("--model", "vgg"), "model must be one of mlp, resnet18, transformer"),
        (("--form", "tree", "--stream"), "form must be 'chosen' for a streamed round"),
        (("--form", "ring"), "form must be one of chosen, tree"),
    ],
)
def test_what_it_does_not_know_is_refused(arguments, message):
    done = run(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(not COMPILER, reason="jax_cuda13_plugin is not installed")
@pytest.mark.parametrize(
    ("strategy", "fraction"), [("overlap_local_sgd", 1.0), ("local_sgd", 0.0)]
)
def test_it_says_what_overlaps_and_exits_accordingly(strategy, fraction):
    done = run("--target", "h100", "--strategy", strategy, "--json")
    result = json.loads(done.stdout)
    assert result["overlapped_fraction"] == fraction
    assert result["mean_bytes"] == result["parameter_bytes"] == 4 * NUM_PARAMETERS
    assert done.returncode == (0 if fraction == 1.0 else 1)
