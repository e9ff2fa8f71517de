"""Who is where: as arguments or the environment say, whole or not at all."""

import types

import jax
import pytest

from olsgd_jax import worker_mesh
from olsgd_jax.training import Config, Process, join
from olsgd_jax.training.cluster.discover import ENVIRONMENT, find_processes
from olsgd_jax.training.components import build_mesh
from olsgd_jax.workers.mesh import process_devices, share_workers

SLURM = {
    "SLURM_JOB_ID": "7",
    "SLURM_STEP_NODELIST": "host[3-4]",
    "SLURM_NTASKS": "4",
    "SLURM_PROCID": "2",
    "SLURM_LOCALID": "0",
}


@pytest.fixture(autouse=True)
def empty_environment(monkeypatch):
    for name in (*ENVIRONMENT.values(), *SLURM, "JAX_COORDINATOR_ADDRESS"):
        monkeypatch.delenv(name, raising=False)


def set_all(monkeypatch, values):
    for name, value in values.items():
        monkeypatch.setenv(name, value)


def test_a_process_that_nobody_tells_of_others_is_alone():
    assert find_processes(None, None, None, timeout=1) is None
    assert join() == Process(id=0, num_processes=1)


def test_the_environment_says_who_is_where(monkeypatch):
    set_all(monkeypatch, SLURM)
    address, *numbers = find_processes(None, None, None, timeout=1)
    assert address.startswith("host3:")
    assert numbers == [4, 2]
    ours = dict(zip(ENVIRONMENT.values(), ("a:1", "3", "1"), strict=True))
    set_all(monkeypatch, ours)
    assert find_processes(None, None, None, timeout=1) == ("a:1", 3, 1)
    assert find_processes("b:2", 9, 8, timeout=1) == ("b:2", 9, 8)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            ("a:1", None, None),
            "all together or not at all, got no num_processes and no",
        ),
        ((None, 2, 0), "got no coordinator"),
        (("a", 2, 0), "coordinator must be HOST:PORT, got 'a'"),
        (("a:b", 2, 0), "coordinator must be HOST:PORT, got 'a:b'"),
        (("a:1", 0, 0), "num_processes must be at least 1, got 0"),
        (
            ("a:1", 2, 2),
            "process_id must be at least 0 and below num_processes 2, got 2",
        ),
        (("a:1", 2, -1), "got -1"),
    ],
)
def test_arguments_that_do_not_fit_are_an_error(given, message):
    with pytest.raises(ValueError, match=message):
        join(*given)


@pytest.mark.parametrize("name", ["join_timeout", "peer_timeout"])
def test_timeouts_are_at_least_a_second(name):
    with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
        join(**{name: 0})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"OLSGD_PROCESS_ID": "1"}, "got no OLSGD_COORDINATOR and no OLSGD_NUM"),
        ({"JAX_COORDINATOR_ADDRESS": "a:1"}, "got no num_processes and no process_id"),
        (
            dict(zip(ENVIRONMENT.values(), ("a:1", "two", "0"), strict=True)),
            "OLSGD_NUM_PROCESSES and OLSGD_PROCESS_ID must be whole numbers",
        ),
    ],
)
def test_an_environment_that_says_too_little_is_an_error(monkeypatch, values, message):
    set_all(monkeypatch, values)
    with pytest.raises(ValueError, match=message):
        join()


@pytest.fixture
def devices(monkeypatch):
    """Lets processes have as many devices as a test says."""

    def have(*counts):
        found = [
            types.SimpleNamespace(process_index=process)
            for process, count in enumerate(counts)
            for _ in range(count)
        ]
        monkeypatch.setattr(jax, "devices", lambda: found)
        monkeypatch.setattr(jax, "process_count", lambda: len(counts))

    return have


def test_processes_have_the_same_number_of_devices(devices):
    devices(2, 2, 2)
    assert [len(own) for own in process_devices()] == [2, 2, 2]
    devices(2, 3, 0)
    with pytest.raises(ValueError, match="got 2, 3, 0 in processes 0 to 2"):
        process_devices()


def test_a_mesh_that_leaves_a_process_out_is_an_error(devices):
    devices(2, 2, 2)
    with pytest.raises(
        ValueError, match="got 2 workers and none for process 1, 2 of 3"
    ):
        worker_mesh(2)


@pytest.mark.parametrize("mapping", ["vmap", "pmap"])
def test_processes_are_no_lanes(mapping, devices):
    devices(1, 1)
    message = (
        f"mapping must not be {mapping} with 2 processes, "
        "each of which has a part of the workers; leave it out"
    )
    with pytest.raises(ValueError, match=message):
        build_mesh(Config(mapping=mapping))


def test_processes_share_workers_evenly():
    assert share_workers(6, 3) == 2
    with pytest.raises(ValueError, match="3 workers and 4 processes; use 4 workers"):
        share_workers(3, 4)
