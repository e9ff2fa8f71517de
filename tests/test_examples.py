"""The examples and benchmarks run, and learn what they should."""

import jax
import jax.numpy as jnp
import pytest

from experiments import codec_cost, lanes, stability
from experiments.examples import linen_pmap, nnx_shard_map
from olsgd_jax import STRATEGIES


@pytest.mark.parametrize("example", [linen_pmap, nnx_shard_map])
def test_the_optax_face_trains_flax_models(example, capsys):
    with jax.numpy_dtype_promotion("standard"):  # as users have it
        assert example.main(num_steps=60) > 0.85  # guessing gives 0.1
    assert "step 50: loss" in capsys.readouterr().out


def test_the_lanes_benchmark_measures_every_number_of_workers(monkeypatch, capsys):
    monkeypatch.setattr(lanes, "NUM_WORKERS", (1, 10))
    with jax.numpy_dtype_promotion("standard"):
        per_worker = lanes.main(repetitions=1)
    assert per_worker.keys() == {1, 10}
    assert all(seconds > 0 for seconds in per_worker.values())
    assert "per worker" in capsys.readouterr().out


def test_the_codec_benchmark_measures_every_compressed_reduction(capsys):
    with jax.numpy_dtype_promotion("standard"):
        times = codec_cost.main(repetitions=1)
    assert times.keys() == {"bfloat16", "int8", "int4", "int2", "top_k"}
    assert all(seconds > 0 for own in times.values() for seconds in own)
    assert "2.16" in capsys.readouterr().out  # MB of int8


def test_the_stability_command_predicts_and_trains(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(stability, "MOMENTA", {"none": None, "heavy": 0.9})
    monkeypatch.setattr(stability, "NUM_ROUNDS", {"linear": 30, "mlp": 2})
    monkeypatch.setattr(stability, "STRATEGIES", {"slowmo": STRATEGIES["slowmo"]})
    words = ["--out", str(tmp_path), "--sync-period", "1", "--train", "linear", "mlp"]
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        stability.main(words)
    shown = capsys.readouterr().out
    assert "3.4" in shown  # 2 (1 + β) / s
    assert (tmp_path / "radius.svg").exists()


def test_power_iteration_finds_the_sharpest_curvature():
    hessian = jnp.diag(jnp.array([1.0, 5.0, 2.0]))

    def loss(x, batch):
        return x @ hessian @ x / 2 + batch.sum()

    problem = stability.Problem(loss, jnp.ones(3), jnp.zeros((1, 1)))
    assert stability.sharpest_curvature(problem) == pytest.approx(5)
