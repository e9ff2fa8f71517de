"""Of several processes and their network, and of compilers and their targets."""

import socket

from experiments.processes.exit_reason import JAX_ENDED_IT, explain_exit
from olsgd_jax.aot import target
from olsgd_jax.overlap import assert_overlapped, overlap_report
from olsgd_jax.training import join
from olsgd_jax.training.cluster.rendezvous import connect_processes
from olsgd_jax.workers.mesh import share_workers


def on_a_taken_port(tmp):
    with socket.create_server(("", 0), family=socket.AF_INET) as server:
        port = server.getsockname()[1]
        connect_processes(f"127.0.0.1:{port}", 2, process_id=0, timeout=1)


def with_nobody_there(process_id):
    def mistake(tmp):
        with socket.create_server(("", 0)) as server:
            port = server.getsockname()[1]
        connect_processes(f"127.0.0.1:{port}", 2, process_id, timeout=1)

    return mistake


def one_that_died(tmp):
    raise ConnectionError(explain_exit(f"{JAX_ENDED_IT}: Task 1 heartbeat timeout."))


class WithoutText:
    def as_text(self):
        return None


NO_COLLECTIVE = "HloModule m, is_scheduled=true\n\nENTRY %main () -> f32[] {\n}\n"
NETWORK = {
    '`join("10.0.0.1", 2, 0)`': lambda tmp: join("10.0.0.1", 2, 0),
    '`join("10.0.0.1:99999", 2, 0)`': lambda tmp: join("10.0.0.1:99999", 2, 0),
    '`join("10.0.0.1:1234", 2)`': lambda tmp: join("10.0.0.1:1234", 2),
    '`join("10.0.0.1:1234", "two", 0)`': lambda tmp: join("10.0.0.1:1234", "two", 0),
    '`join("10.0.0.1:1234", 2, 2)`': lambda tmp: join("10.0.0.1:1234", 2, 2),
    "`join(join_timeout=0)`": lambda tmp: join(join_timeout=0),
    "a coordinator port that is in use": on_a_taken_port,
    "process 0 does not start": with_nobody_there(1),
    "process 1 does not start": with_nobody_there(0),
    "a process dies or hangs, under `launch`": one_that_died,
    "5 workers in 2 processes": lambda tmp: share_workers(5, 2),
}
COMPILERS = {
    '`target("p100:1x1x8")`': lambda tmp: target("p100:1x1x8"),
    '`overlap_report("hello")`': lambda tmp: overlap_report("hello"),
    "`overlap_report` of a program without text": lambda tmp: overlap_report(
        WithoutText()
    ),
    "`overlap_report` of a truncated program": lambda tmp: overlap_report(
        "HloModule m, is_scheduled=true\n"
    ),
    "`assert_overlapped` of a program without a mean": lambda tmp: assert_overlapped(
        NO_COLLECTIVE
    ),
}
