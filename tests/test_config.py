"""Config: defaults, what it refuses, and that it stays what it was."""

import dataclasses
import json

import jaxtyping
import numpy as np
import pytest

from olsgd_jax import STRATEGIES
from olsgd_jax._checks import check_choice
from olsgd_jax.training import Config, build_strategy, option_types

COUNTS = (
    "width",
    "num_workers",
    "sync_period",
    "batch_size",
    "num_rounds",
    "evaluate_every",
)


@pytest.fixture
def unchecked(monkeypatch):
    """Turns off the tests' check of annotations, which would refuse kinds first."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


def test_the_default_is_the_papers_strategy_with_its_arguments():
    config = Config()
    assert config.strategy == "overlap_local_sgd"
    assert config.strategy_args == {"pullback": 0.6, "anchor_momentum": 0.7}


def test_a_strategy_that_needs_no_arguments_gets_none():
    assert Config(strategy="local_sgd").strategy_args == {}


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_default_arguments_of_a_strategy_build_it(name):
    assert Config(strategy=name).strategy_args == STRATEGIES[name].args
    assert build_strategy(Config(strategy=name)).name == name


def test_a_config_can_be_a_key():
    other = Config(strategy_args={"pullback": 0.1})
    runs = {Config(): 1, other: 2, Config(seed=1): 3}
    assert runs[Config()] == 1
    assert runs[dataclasses.replace(other)] == 2
    assert hash(Config(decay_epochs=[1.0])) == hash(Config(decay_epochs=(1.0,)))


@pytest.mark.parametrize("name", option_types(Config))
def test_every_option_says_what_it_means(name):
    assert option_types(Config)[name].meaning


def test_given_arguments_stand():
    args = {"pullback": 0.1}
    config = Config(strategy_args=args)
    args["pullback"] = 0.9
    assert config.strategy_args == {"pullback": 0.1}


def test_a_changed_config_leaves_the_defaults_alone():
    args = Config().strategy_args
    args["pullback"] = 0.1
    assert Config().strategy_args["pullback"] == 0.6


def test_a_replaced_strategy_takes_its_own_defaults():
    config = dataclasses.replace(Config(), strategy="slowmo", strategy_args=None)
    assert config.strategy_args == {"momentum": 0.7}


def test_a_config_survives_json():
    config = Config(
        strategy="sync_sgd",
        reduction="low_rank",
        reduction_args={"rank": 1},
        mapping="vmap",
        seed=2**32 - 1,
        decay_epochs=(1.5, 2.0),
        evaluate=("worker", "virtual"),
    )
    assert Config(**json.loads(json.dumps(dataclasses.asdict(config)))) == config


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", COUNTS)
def test_counts_are_whole_numbers_of_at_least_1(name):
    with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
        Config(**{name: 0})
    with pytest.raises(TypeError, match=f"{name} must be a whole number, got 2.5"):
        Config(**{name: 2.5})


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dropout": 1.0}, r"dropout must be in \[0, 1\), got 1.0"),
        (
            {"learning_rate": 0.0},
            r"learning_rate must be in \[1e-30, 1e\+30\], got 0.0",
        ),
        ({"momentum": 1.0}, r"momentum must be in \[0, 1\), got 1.0"),
        ({"weight_decay": -1.0}, r"weight_decay must be in \[0, 1e\+30\], got -1.0"),
        ({"seed": -1}, r"seed must be in \[0, 2\*\*32\), got -1"),
        ({"seed": 2**32}, r"seed must be in \[0, 2\*\*32\), got 4294967296"),
        ({"evaluate": ("best",)}, "evaluate must be one of worker, consensus, anch"),
        ({"evaluate": ()}, "evaluate must name at least one model, each once, got"),
        ({"evaluate": ("worker",) * 2}, "evaluate must name at least one model, each"),
        (
            {"decay_epochs": (3.0, -1.0)},
            r"decay_epochs must be in \(0, 1e\+30\], got -1.0",
        ),
        ({"warmup_epochs": -1.0}, r"warmup_epochs must be in \[0, 1e\+30\], got -1.0"),
        ({"concentration": 0.0}, r"concentration must be in \(0, 1e\+12\], got 0.0"),
        (
            {"concentration": 1e30},
            r"concentration must be in \(0, 1e\+12\], got 1e\+30",
        ),
        ({"learning_rate": 10**400}, r"learning_rate must be in .*, got inf"),
        ({"num_rounds": 2**31}, r"num_rounds must be below 2\*\*31, got 2.147e\+09"),
        ({"dtype": "float8"}, "dtype must be one of float32, bfloat16, got 'float8'"),
        ({"model_state_policy": "none"}, "model_state_policy must be one of local, a"),
        ({"mapping": "xmap"}, "mapping must be one of vmap, pmap, shard_map, got 'xm"),
        (
            {"strategy_args": {"pullback": float("inf")}},
            r"strategy_args\['pullback'\] must be in \(-inf, inf\), got inf",
        ),
    ],
)
def test_options_out_of_range_are_errors(options, message):
    with pytest.raises(ValueError, match=message):
        Config(**options)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": 1.5}, "seed must be a whole number, got 1.5"),
        ({"seed": True}, "seed must be a whole number, got True"),
        ({"learning_rate": "fast"}, "learning_rate must be a number, got 'fast'"),
        ({"learning_rate": 1j}, "learning_rate must be a number, got 1j"),
        ({"dataset": None}, "dataset must be a name, got None"),
        ({"strategy": ["slowmo"]}, r"strategy must be a name, got \['slowmo'\]"),
        ({"augment": "no"}, "augment must be True or False, got 'no'"),
        ({"long_first_round": 1}, "long_first_round must be True or False, got 1"),
        ({"data_dir": 3}, "data_dir must be a path as text, or None, got 3"),
        ({"decay_epochs": 3.0}, "decay_epochs must be a list or a tuple, got 3.0"),
        ({"evaluate": "worker"}, "evaluate must be a list or a tuple, got 'worker'"),
        ({"strategy_args": [0.5]}, r"strategy_args must be a dict of numbers, got \["),
        (
            {"strategy_args": {"pullback": "half"}},
            r"strategy_args\['pullback'\] must be a number, got 'half'",
        ),
    ],
)
def test_options_of_another_kind_are_errors(options, message):
    with pytest.raises(TypeError, match=message):
        Config(**options)


@pytest.mark.usefixtures("unchecked")
def test_numbers_of_numpy_become_those_of_json():
    config = Config(seed=np.int64(3), dropout=np.float32(0.5), augment=np.True_)
    assert config == Config(seed=3, dropout=0.5, augment=True)
    assert json.loads(json.dumps(dataclasses.asdict(config)))["seed"] == 3


def test_a_name_that_is_nearly_right_is_given_its_neighbour():
    with pytest.raises(ValueError, match="got 'pmaps'; did you mean 'pmap'?"):
        check_choice("mapping", "pmaps", ("vmap", "pmap", "shard_map"))
    with pytest.raises(ValueError, match="got 'x'$"):
        check_choice("mapping", "x", ("vmap", "pmap", "shard_map"))


def test_an_option_that_does_not_exist_is_an_error():
    with pytest.raises(TypeError, match="learning_rat"):
        Config(learning_rat=0.1)
