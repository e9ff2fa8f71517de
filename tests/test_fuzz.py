"""Whatever a config says, it trains or is refused by name; some of many tries."""

import subprocess
import sys

import hypothesis
import jax
import jaxtyping
import pytest

from experiments import fuzz
from experiments.robustness.fuzz_configs import configs

SMALL = {"width": 4, "batch_size": 4, "num_workers": 2, "sync_period": 1}


@pytest.fixture(scope="module", autouse=True)
def _as_users_have_it():
    """Turns off the tests' check of annotations, which would refuse kinds first."""
    with (
        pytest.MonkeyPatch.context() as patch,
        jax.enable_x64(False),
        jax.numpy_dtype_promotion("standard"),
    ):
        patch.setattr(jaxtyping.config, "jaxtyping_disable", True)
        yield


@hypothesis.settings(
    max_examples=20,
    deadline=None,
    derandomize=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
@hypothesis.given(configs())
def test_a_config_trains_or_is_refused_by_name(options):
    fuzz.outcome(options)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "ran"),
        ({"learning_rate": 1e20}, "diverged"),
        ({"sync_period": 10**9}, "refused: sync_period"),
        ({"width": 10**9}, "refused: width"),
        ({"batch_size": 1000}, "refused: batch_size"),
        ({"strategy": "local_sgd", "evaluate": ["anchor"]}, "refused: evaluate"),
        (
            {"reduction": "low_rank", "reduction_args": {"rank": 0}},
            "refused: reduction",
        ),
        ({"warmup_epochs": 1e-323}, "ran"),
    ],
)
def test_the_outcome_of_a_config_is_told(options, expected):
    assert fuzz.outcome({**SMALL, "num_rounds": 2, **options}).startswith(expected)


def test_an_error_that_names_no_option_is_unexpected(monkeypatch):
    def fail(config):
        raise ValueError("incompatible shapes for broadcasting: (4,), (5,)")

    monkeypatch.setattr(fuzz, "train", fail)
    with pytest.raises(fuzz.UnexpectedError, match="ValueError: incompatible shapes"):
        fuzz.outcome({})


def test_a_config_that_takes_too_long_is_shown():
    done = subprocess.run(
        [sys.executable, "-m", "experiments.fuzz", "--examples", "1", "--limit", "0"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "hangs: {" in done.stdout
