"""A wheel, installed with nothing beside it, is whole; its core needs four packages."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tomllib

import pytest

from olsgd_jax.training.data import prepared

ROOT = pathlib.Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# What no import may find: all that extras bring.
BLOCK = """
import sys

BLOCKED = {"flax", "orbax", "scipy", "rich", "tensorflow_datasets", "tensorflow"}
BLOCKED |= {"sklearn", "matplotlib", "PIL", "tensorboardX", "chex", "tyro", "jinja2"}


class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Blocker())
"""
ALONE = """
import olsgd_jax

print(olsgd_jax.__file__)
missing = [x for x in olsgd_jax.__all__ if not hasattr(olsgd_jax, x)]
assert not missing, missing
assert not [x for x in sys.modules if x.startswith("olsgd_jax.training")]

import olsgd_jax.overlap, olsgd_jax.theory, olsgd_jax.timing
import jax, jax.numpy as jnp, optax
from olsgd_jax import consensus_of, distribute, overlap_jit, overlap_local_sgd
from olsgd_jax import to_workers, worker_mesh

tx = distribute(optax.sgd(0.1), overlap_local_sgd(0.5), sync_period=2)


def train_step(params, opt_state, target):
    updates, opt_state = tx.update(params - target, opt_state, params)
    return optax.apply_updates(params, updates), opt_state


mesh = worker_mesh(4)
step = overlap_jit(train_step, mesh)
state = to_workers((jnp.zeros(()), tx.init(jnp.zeros(()))), 4, mesh)
for _ in range(400):
    state = step(*state, jnp.arange(4.0))
# The workers pull towards 0, 1, 2 and 3, so that their mean comes to rest at 1.5.
assert abs(consensus_of(state)[0] - 1.5) < 1e-3, consensus_of(state)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A directory with the wheel of this library and nothing else."""
    directory = tmp_path_factory.mktemp("wheel")
    sources = directory / "sources"  # a copy: building leaves files behind
    shutil.copytree(ROOT / "olsgd_jax", sources / "olsgd_jax")
    for path in filter(pathlib.Path.is_file, ROOT.iterdir()):
        shutil.copy(path, sources)
    pip = [sys.executable, "-m", "pip", "--quiet"]
    options = ["--no-deps", "--wheel-dir", directory]
    made = subprocess.run([*pip, "wheel", *options, sources], capture_output=True)
    if made.returncode:
        pytest.skip(f"no wheel can be built: {made.stderr.decode()[-300:]}")
    [wheel] = directory.glob("*.whl")
    target = directory / "installed"
    install = [*pip, "install", "--no-deps", "--target", target, wheel]
    subprocess.run(install, check=True, capture_output=True)
    return target


def run(program, directory, cwd):
    environment = {
        **os.environ,
        "PYTHONPATH": str(directory),
        "PYTHONWARNINGS": "error",
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
    }
    command = [sys.executable, "-c", program]
    done = subprocess.run(
        command, env=environment, cwd=cwd, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_core_trains_with_all_extras_blocked(installed, tmp_path):
    [file] = run(BLOCK + ALONE, installed, tmp_path).splitlines()
    assert pathlib.Path(file).is_relative_to(installed)


@pytest.mark.parametrize(
    ("room", "extra"),
    [
        ("training", "train"),
        ("aot", "train"),
        ("bench.__main__", "train"),
        ("overlap.__main__", "aot"),
    ],
)
def test_a_room_without_its_extra_names_it(room, extra, installed, tmp_path):
    program = f"""
try:
    import olsgd_jax.{room}
except ModuleNotFoundError as error:
    print(error)
"""
    said = run(BLOCK + program, installed, tmp_path)
    assert re.fullmatch(
        rf"No module named '.+'; pip install .olsgd_jax\[{extra}\].\n", said
    )


def test_digits_without_their_extra_name_it(installed, tmp_path):
    program = f"""
import os, sys
os.environ["XDG_CACHE_HOME"] = {str(tmp_path)!r}  # where they are not kept yet
sys.modules["sklearn"] = None
from olsgd_jax.training import load_dataset
try:
    load_dataset("digits")
except ModuleNotFoundError as error:
    print(error)
"""
    said = run(program, installed, tmp_path)
    assert said.endswith('pip install "olsgd_jax[experiments]"\n')


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_readme_runs_from_the_wheel(example, installed, tmp_path):
    program = f"{example}\nimport olsgd_jax\nprint(olsgd_jax.__file__)"
    *_, file = run(program, installed, tmp_path).splitlines()
    assert pathlib.Path(file).is_relative_to(installed)


def test_the_core_depends_on_four_packages():
    names = [re.match(r"[\w-]+", x)[0] for x in PROJECT["dependencies"]]
    assert sorted(names) == ["jax", "jaxtyping", "numpy", "optax"]


def test_the_extra_for_data_brings_what_is_needed_to_prepare_them():
    names = {re.match(r"\w+", x)[0] for x in PROJECT["optional-dependencies"]["data"]}
    assert names.issuperset(prepared.NEEDED)


def test_no_upper_bound_keeps_the_newest_jax_away():
    extras = PROJECT["optional-dependencies"]
    given = PROJECT["dependencies"] + extras["train"] + extras["experiments"]
    assert not [x for x in given if "<" in x or "==" in x or "~=" in x]
