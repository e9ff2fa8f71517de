"""A run that was stopped goes on to the same bits, wherever it was stopped."""

import dataclasses
import itertools

import jax
import numpy as np
import pytest

from olsgd_jax.strategies import STRATEGIES
from olsgd_jax.training import Checkpoints, Config, Due, Layout, Record, Resumed, train
from olsgd_jax.training.components import build


def config_of(strategy="overlap_local_sgd", **options):
    kept = {"num_rounds": 5, "num_workers": 2, "sync_period": 2, "batch_size": 16}
    kept |= {"width": 8, "evaluate_every": 3, "dropout": 0.1}
    return Config(strategy=strategy, **{**kept, **options})


def final_bits(config, directory):
    """What the last checkpoint of a run holds, as bytes."""
    with Checkpoints(directory) as checkpoints:
        found = checkpoints.restore(build(config).init())
    assert found.number == config.num_rounds
    plain = jax.tree.map(
        lambda x: jax.random.key_data(x) if x.dtype.name.startswith("key") else x,
        found.tree,
    )
    return [np.asarray(x).tobytes() for x in jax.tree.leaves(plain)]


def without_seconds(entries):
    return [x._replace(seconds=0) if isinstance(x, Record) else x for x in entries]


def run(config, directory, every=2, num_records=None):
    """Trains until so many records were made, then drops the run as it is."""
    with Checkpoints(directory) as checkpoints:
        records = train(config, checkpoints=checkpoints, due=Due(every))
        return without_seconds(itertools.islice(records, num_records))


def assert_same_when_stopped(config, tmp_path):
    whole = run(config, tmp_path / "whole")
    stopped = run(config, tmp_path / "stopped", num_records=1)
    assert stopped == whole[:1]
    assert run(config, tmp_path / "stopped") == whole
    bits = [final_bits(config, tmp_path / x) for x in ("whole", "stopped")]
    assert bits[0] == bits[1]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_goes_on_to_the_same_bits(strategy, tmp_path):
    assert_same_when_stopped(config_of(strategy), tmp_path)


@pytest.mark.parametrize("strategy", ["sync_sgd", "overlap_local_sgd"])
def test_so_does_a_run_that_sends_fewer_bits(strategy, tmp_path):
    assert_same_when_stopped(config_of(strategy, reduction="int4"), tmp_path)


@pytest.mark.parametrize("mapping", ["pmap", "shard_map"])
def test_so_does_every_mapping(mapping, tmp_path):
    assert_same_when_stopped(config_of(mapping=mapping), tmp_path)


def test_other_flags_of_the_compiler_are_named(tmp_path, monkeypatch):
    jax.devices()  # XLA has read its flags, and refuses these no more
    monkeypatch.setenv("XLA_FLAGS", "--xla_a=1 --xla_b=2")
    run(config_of(), tmp_path, num_records=1)
    monkeypatch.setenv("XLA_FLAGS", "--xla_a=1 --xla_b=3")
    changed = "XLA_FLAGS was '--xla_a=1 --xla_b=2', now '--xla_a=1 --xla_b=3';"
    with pytest.warns(UserWarning, match=changed):
        run(config_of(), tmp_path, num_records=1)
    devices = "--xla_force_host_platform_device_count=4"
    monkeypatch.setenv("XLA_FLAGS", f"--xla_b=2 {devices} --xla_a=1")
    run(config_of(), tmp_path, num_records=1)  # a warning would be an error


class KilledBefore(Due):
    """Says that it is time after every round, and ends the run at one of them."""

    def __init__(self, number):
        super().__init__(every=1)
        self.number = number

    def __call__(self, number):
        if number == self.number:
            raise KeyboardInterrupt
        return super().__call__(number)


def test_a_checkpoint_may_lie_between_two_records(tmp_path):
    # Records are of rounds 3 and 6; the loss of round 4 is in a checkpoint alone.
    config = config_of(num_rounds=6, long_first_round=True)
    whole = run(config, tmp_path / "whole")
    with Checkpoints(tmp_path / "stopped") as checkpoints:
        records = train(config, checkpoints=checkpoints, due=KilledBefore(5))
        assert without_seconds([next(records)]) == whole[:1]
        with pytest.raises(KeyboardInterrupt):
            next(records)
    assert (tmp_path / "stopped" / "4").exists()
    assert run(config, tmp_path / "stopped") == whole
    bits = [final_bits(config, tmp_path / x) for x in ("whole", "stopped")]
    assert bits[0] == bits[1]


def test_a_finished_run_gives_its_records_again(tmp_path):
    config = config_of()
    whole = run(config, tmp_path)
    assert run(config, tmp_path) == whole
    longer = dataclasses.replace(config, num_rounds=6)
    assert run(longer, tmp_path)[:2] == whole


def test_another_mapping_may_go_on(tmp_path):
    lanes = config_of(mapping="vmap")
    devices = dataclasses.replace(lanes, mapping="shard_map")
    run(lanes, tmp_path, num_records=1)
    records, whole = run(devices, tmp_path), run(lanes, tmp_path / "whole")
    assert records[-1].test_loss == pytest.approx(whole[-1].test_loss, rel=1e-9)
    before = Layout(2, "vmap", "16 x cpu", 1)
    change = Resumed(2, before, before._replace(mapping="shard_map"))
    assert [x for x in records if not isinstance(x, Record)] == [change]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": 1}, "seed was 0, now 1"),
        ({"learning_rate": 0.2}, "learning_rate was 0.1, now 0.2"),
        ({"strategy": "local_sgd", "strategy_args": None}, "strategy was"),
        ({"width": 16}, "width was 8, now 16"),
    ],
)
def test_another_run_is_refused(tmp_path_factory, options, message):
    directory = tmp_path_factory.getbasetemp() / "of_one_run"
    if not directory.exists():
        run(config_of(), directory, num_records=1)
    other = dataclasses.replace(config_of(), **options)
    with pytest.raises(
        ValueError, match=f"cannot resume with a different config: .*{message}"
    ):
        run(other, directory)


def test_a_run_whose_rate_follows_a_cosine_keeps_its_length(tmp_path):
    config = config_of(schedule="warmup_cosine", learning_rate=0.01)
    assert_same_when_stopped(config, tmp_path)
    longer = dataclasses.replace(config, num_rounds=6)
    with pytest.raises(ValueError, match="different config: num_rounds was 5, now 6"):
        run(longer, tmp_path / "whole")


def test_no_checkpoint_is_made_of_what_diverged(tmp_path):
    config = config_of("local_sgd", learning_rate=1e30, num_rounds=8)
    with pytest.raises(FloatingPointError, match=r"in round \d of local_sgd, worker "):
        run(config, tmp_path)
    with Checkpoints(tmp_path) as checkpoints:
        found = checkpoints.restore(build(config).init())
    if found is not None:
        assert all(np.isfinite(x).all() for x in jax.tree.leaves(found.tree.params))
