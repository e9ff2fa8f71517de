"""Processes are found as arguments or the environment say, whole or not at all."""

import http.server
import threading
import types

import jax
import pytest

from olsgd_jax import worker_mesh
from olsgd_jax.training import Config, Process, join
from olsgd_jax.training.cluster import discover
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
OPEN_MPI = {
    "OMPI_MCA_orte_hnp_uri": "1531576320.0;tcp://10.96.0.1,10.148.0.1:34911",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_RANK": "2",
}
GKE = {"TPU_WORKER_HOSTNAMES": "tpu-0.pods,tpu-1.pods", "TPU_WORKER_ID": "1"}
SLICES = {
    "MEGASCALE_COORDINATOR_ADDRESS": "slice-0.pods:8080",
    "MEGASCALE_NUM_SLICES": "3",
    "MEGASCALE_SLICE_ID": "2",
}
JAX = ("JAX_COORDINATOR_ADDRESS", "JAX_COORDINATOR_PORT")


@pytest.fixture(autouse=True)
def empty_environment(monkeypatch):
    known = (*ENVIRONMENT.values(), *SLURM, *OPEN_MPI, *GKE, *SLICES, *JAX)
    for name in (*known, "TPU_PROCESS_ADDRESSES", "TPU_SKIP_MDS_QUERY"):
        monkeypatch.delenv(name, raising=False)


def set_all(monkeypatch, values):
    for name, value in values.items():
        monkeypatch.setenv(name, value)


def test_a_process_that_nobody_tells_of_others_is_alone():
    assert find_processes(None, None, None) is None
    assert join() == Process(id=0, num_processes=1)


def test_the_environment_says_which_process_this_is(monkeypatch):
    set_all(monkeypatch, SLURM)
    address, *numbers = find_processes(None, None, None)
    assert address.startswith("host3:")
    assert numbers == [4, 2]
    ours = dict(zip(ENVIRONMENT.values(), ("a:1", "3", "1"), strict=True))
    set_all(monkeypatch, ours)
    assert find_processes(None, None, None) == ("a:1", 3, 1)
    assert find_processes("b:2", 9, 8) == ("b:2", 9, 8)


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("node001", "node001"),
        ("node001,other", "node001"),
        ("node[001-015],other", "node001"),
        ("node[007,009-015]", "node007"),
        ("rack[2-3]-n[4,6].local,rack9", "rack2-n4.local"),
    ],
)
def test_process_0_is_on_the_first_host_of_a_slurm_job(monkeypatch, nodes, first):
    set_all(monkeypatch, {**SLURM, "SLURM_STEP_NODELIST": nodes})
    assert find_processes(None, None, None) == (f"{first}:61447", 4, 2)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (OPEN_MPI, ("10.96.0.1:62624", 4, 2)),
        (
            {**OPEN_MPI, "OMPI_MCA_orte_hnp_uri": "4096.0;tcp6://[fe80::b9b,::3]:433"},
            ("[fe80::b9b]:61441", 4, 2),
        ),
        (
            {**OPEN_MPI, "OMPI_MCA_orte_hnp_uri": "4096.0;tcp://10.96.0.1:433"},
            ("10.96.0.1:61441", 4, 2),
        ),
        (GKE, ("tpu-0.pods:8482", 2, 1)),
        ({**GKE, "TPU_WORKER_ID": "WARNING: could not determine it"}, None),
        ({**GKE, "TPU_PROCESS_ADDRESSES": "a:1,b:1,c:1"}, ("a:8482", 3, 1)),
        ({**GKE, **SLICES}, ("slice-0.pods:8482", 6, 5)),
        ({**GKE, "JAX_COORDINATOR_PORT": "77"}, ("tpu-0.pods:77", 2, 1)),
        ({**SLURM, "JAX_COORDINATOR_ADDRESS": "a:1"}, ("a:1", 4, 2)),
    ],
)
def test_other_schedulers_are_understood(monkeypatch, values, expected):
    set_all(monkeypatch, values)
    assert find_processes(None, None, None) == expected


@pytest.fixture
def tpu_vm(monkeypatch):
    """A TPU VM, whose metadata server knows what a test says."""
    known = {}

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self):  # noqa: N802  the name is given
            key = self.path.rpartition("/")[2]
            is_asked_well = self.headers["Metadata-Flavor"] == "Google"
            self.send_response(200 if key in known and is_asked_well else 404)
            self.end_headers()
            self.wfile.write(known.get(key, "").encode())

        def log_message(self, *words):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever).start()
        monkeypatch.setattr(discover, "_has_tpu", lambda: True)
        monkeypatch.setenv("GCE_METADATA_IP", f"127.0.0.1:{server.server_port}")
        yield known
        server.shutdown()


def test_a_tpu_vm_asks_its_metadata_server(tpu_vm):
    assert find_processes(None, None, None) is None
    tpu_vm["agent-worker-number"] = "1"
    tpu_vm["worker-network-endpoints"] = "w:0:10.0.0.5,w:1:10.0.0.6"
    assert find_processes(None, None, None) == ("10.0.0.5:8482", 2, 1)
    tpu_vm["worker-network-endpoints"] = "t-w-0,t-w-1"
    assert find_processes(None, None, None) == ("t-w-0:8482", 2, 1)
    tpu_vm["tpu-env"] = "A: 'b'\n" + "".join(
        f"{name}: '{value}'\n" for name, value in SLICES.items()
    )
    assert find_processes(None, None, None) == ("slice-0.pods:8482", 6, 5)


def test_a_tpu_vm_without_its_metadata_server_is_an_error(tpu_vm, monkeypatch):
    monkeypatch.setenv("GCE_METADATA_IP", "127.0.0.1:1")
    with pytest.raises(
        ConnectionError, match="this TPU VM must say which process this"
    ):
        join()
    monkeypatch.setenv("TPU_SKIP_MDS_QUERY", "1")
    assert join() == Process(id=0, num_processes=1)


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
        (
            {**OPEN_MPI, "OMPI_MCA_orte_hnp_uri": "?"},
            "OMPI_MCA_orte_hnp_uri must be JOB.0;tcp://HOST:PORT",
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
