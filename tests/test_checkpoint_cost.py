"""What a checkpoint costs: the time of a block that has one beyond that of another."""

import types

import pytest

from experiments import checkpoint_cost
from experiments.checkpoint_cost import BLOCK, NUM_WARM, configs, measure, row
from olsgd_jax.training import Config

ROUND, CHECKPOINT = 0.25, 0.5  # seconds


@pytest.fixture
def config():
    number = configs(repetitions=3, data_dir=None)["CIFAR-10, resnet8, 16 workers"]
    return Config(num_rounds=number.num_rounds, evaluate_every=number.num_rounds)


def test_the_cost_is_what_blocks_with_a_checkpoint_take_longer(config, monkeypatch):
    now = 0.0

    def train(config, *, checkpoints, due):
        nonlocal now
        del checkpoints
        for number in range(1, config.num_rounds):
            now += ROUND
            now += CHECKPOINT if due(number) else 0
        return []

    clock = types.SimpleNamespace(
        perf_counter=lambda: now, process_time=lambda: 2 * now
    )
    monkeypatch.setattr(checkpoint_cost, "time", clock)
    monkeypatch.setattr(checkpoint_cost, "train", train)
    cost = measure(config)
    assert cost.without == [BLOCK * ROUND] * 3
    assert cost.extra == [CHECKPOINT] * 3
    assert cost.fractions() == [CHECKPOINT / 60] * 3
    assert cost.cpu_extra == [2 * CHECKPOINT] * 3
    assert cost.cpu_fraction() == CHECKPOINT / 60


def test_a_run_is_measured(config):
    cost = measure(config)
    assert [len(x) for x in cost] == [3] * 5
    assert min(cost.still) > 0
    assert row("digits", cost)[0] == "digits"
    assert config.num_rounds > 2 * BLOCK * (NUM_WARM + 3)
