"""Sixteen CPU devices, float64, strict promotion, checked annotations."""

import os
import pathlib

# Tests compile much and run little, in as many processes as there are cores: more
# threads per compilation would only get in each other's way.
os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "") + " --xla_cpu_parallel_codegen_split_count=1"
)

import jax
import pytest
from jaxtyping import install_import_hook

import tests.typecheck  # noqa: F401  the hook below finds it by name

jax.config.update("jax_num_cpu_devices", 16)
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")

install_import_hook("olsgd_jax", "tests.typecheck.check")

from olsgd_jax import worker_mesh  # noqa: E402  behind the hook
from olsgd_jax.training import load_dataset  # noqa: E402  behind the hook


@pytest.fixture(params=["lanes", "devices"])
def mesh(request):
    """Four workers: once as lanes of one device, once as a device each."""
    return None if request.param == "lanes" else worker_mesh(4)


def on_disk(name):
    """A data set itself, where it lies on disk."""
    beside = pathlib.Path(__file__).resolve().parents[2] / "shared/data/tfds"
    root = pathlib.Path(os.environ.get("TFDS_DATA_DIR") or beside)
    if not (root / name).is_dir():
        pytest.skip(f"{name} is not in {root}; set TFDS_DATA_DIR to where it is")
    return load_dataset(name, root)


@pytest.fixture(scope="session")
def real_cifar10():
    return on_disk("cifar10")


@pytest.fixture(scope="session")
def real_tiny_shakespeare():
    return on_disk("tiny_shakespeare")
