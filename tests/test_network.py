"""Rounds of strategies on hosts with shaped links."""

import json
import sys

import jax
import pytest

from experiments import network
from experiments.links.gloo import ring_bytes
from experiments.links.hosts import hosts, why_not
from experiments.measured.network_case import Case, list_cases
from experiments.measured.network_numbers import numbers_of
from experiments.measured.network_work import (
    Work,
    reduction_of,
    sent_trees,
    silenced,
    start,
    worker_round,
)
from experiments.processes.host_processes import run_on_all
from olsgd_jax import WORKERS, payload_bytes, worker_mesh

REASON = why_not()
needs_hosts = pytest.mark.skipif(REASON is not None, reason=str(REASON))

OPTIONS = ["--hosts", "2", "--rates", "1gbit", "--strategies", "local_sgd"]
OPTIONS += ["--sync-periods", "2", "--repetitions", "3", "--width", "256"]


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """A directory with one case that was measured on two hosts."""
    out = tmp_path_factory.mktemp("network")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["network", *OPTIONS, "--out", str(out)])
        network.main()
    return out


@pytest.fixture
def record(out):
    [line] = (out / "network.jsonl").read_text().splitlines()
    return json.loads(line)


@needs_hosts
def test_a_case_is_measured_on_two_hosts(out, record):
    assert Case(*(record[x] for x in Case._fields)) == Case(
        2, "1gbit", "local_sgd", 2, repetitions=3, width=256
    )
    assert {len(x) for x in record["samples"].values()} == {3}
    assert {"machine", "versions", "commit", "batch_size"} < record.keys()
    numbers = numbers_of(record["samples"])
    assert min(numbers.steps, numbers.mean, numbers.round) > 0
    assert "Local SGD | 2 |" in (out / "network.md").read_text()


@needs_hosts
def test_what_a_host_sends_is_what_the_ring_says(record):
    # 8 matrices of 256 x 256, and 2 (m − 1) / m is 1 for two hosts.
    assert record["payload_bytes"] == 8 * 256 * 256 * 4
    sent = numbers_of(record["samples"]).sent
    assert sent == pytest.approx(record["payload_bytes"], rel=0.05)
    assert sent == pytest.approx(record["expected_bytes"], rel=0.01)
    assert max(record["samples"]["without_bytes"]) < 5_000  # to meet, and to be alive


@needs_hosts
def test_a_finished_case_is_not_measured_again(out, record, monkeypatch, capsys):
    asked = []
    own = {x: record[x] for x in record.keys() - set(Case._fields)}
    monkeypatch.setattr(network, "run_case", lambda case: asked.append(case) or own)
    options = [*OPTIONS, "--sync-periods", "2", "3", "--out", str(out)]
    before = (out / "network.jsonl").read_text()
    monkeypatch.setattr(sys, "argv", ["network", *options])
    network.main()
    (out / "network.jsonl").write_text(before)
    assert [case.sync_period for case in asked] == [3]


@needs_hosts
def test_a_process_computes_while_it_waits_for_a_mean(tmp_path):
    # Host 1 joins the mean when host 0 has computed: one of them would wait forever.
    code = """
import pathlib, sys, threading, time
from experiments.processes.host_processes import join
own, done = join(), pathlib.Path(sys.argv[1])
import jax, jax.numpy as jnp
from olsgd_jax import on_workers, to_workers, worker_mean, worker_mesh
mesh = worker_mesh(2)
ones = to_workers(jnp.ones(1000), 2, mesh)
mean = jax.jit(on_workers(worker_mean, mesh))
jax.block_until_ready(mean(ones))
steps = jax.jit(lambda x: jax.lax.fori_loop(0, 9, lambda _, y: jnp.tanh(y @ y), x))
thread = threading.Thread(target=lambda: jax.block_until_ready(mean(ones)))
while own == 1 and not done.exists():
    time.sleep(0.1)
thread.start()
if own == 0:
    time.sleep(1)
    jax.block_until_ready(steps(jnp.ones((300, 300))))
    done.touch()
thread.join()
"""
    with hosts(2, "1gbit"):
        command = [sys.executable, "-c", code, str(tmp_path / "done")]
        run_on_all(command, 2, timeout=90)


LABELS = [*network.STRATEGIES, "slowmo"]


@pytest.mark.parametrize("label", LABELS)
def test_the_means_alone_are_of_what_a_round_sends(label):
    work, mesh = Work(label, sync_period=5, width=16, depth=3), worker_mesh(4)
    reduction = reduction_of(work)
    code = worker_round(work, reduction, mesh)
    payload = payload_bytes(code, *start(work, mesh, reduction), num_workers=4)
    trees, _ = sent_trees(work, 4)
    assert sum(x.nbytes for x in jax.tree.leaves(trees)) == payload


def test_rounds_in_low_rank_that_send_nothing_still_compress():
    work, mesh = Work("sync_sgd:low_rank:2", 1, width=16, depth=3), worker_mesh(4)
    silent = silenced(work, 4)
    code, state = worker_round(work, silent, mesh), start(work, mesh, silent)
    assert payload_bytes(code, *state, num_workers=4) == 0
    assert "qr" in str(jax.make_jaxpr(jax.vmap(code, axis_name=WORKERS))(*state))
    assert silenced(Work("local_sgd:low_rank", 1), 4).name == "send_nothing"


def test_a_ring_of_hosts_sends_each_part_twice_but_to_its_owner():
    # Every part is of 2 segments, whose headers are 408 bytes each.
    assert ring_bytes(6 * 2**20, 2) == 6 * 2**20 + 2 * 2 * 408
    assert ring_bytes(400, 4) == 600 + 6 * 2 * 408


def test_strategies_that_send_at_every_step_have_rounds_of_one():
    labels, options = ["sync_sgd:low_rank:2", "easgd"], (5, 16, 2)
    cases = list_cases([2, 4], ["10mbit", "1gbit"], labels, [1, 8], options)
    periods = [("sync_sgd:low_rank:2", 1), ("easgd", 1), ("easgd", 8)]
    assert [(x.strategy, x.sync_period) for x in cases] == 4 * periods
    assert [x.rate for x in cases[::3]] == 2 * ["1gbit", "10mbit"]  # fast ones first


@pytest.mark.parametrize(
    ("label", "periods", "repetitions", "message"),
    [
        ("local_sgd:often", [1], 2, "may have stream or a reduction after its colon"),
        ("sync_sgd:int8:4", [1], 2, "got sync_sgd:int8:4"),
        ("sync_sgd:low_rank:0", [1], 2, "rank must be at least 1, got 0"),
        ("local_sgd", [0], 2, "sync_period must be at least 1"),
        ("local_sgd", [1], 1, "repetitions must be at least 2"),
        ("local", [1], 2, "strategy must be one of"),
    ],
)
def test_cases_are_checked_before_any_is_measured(label, periods, repetitions, message):
    with pytest.raises(ValueError, match=message):
        list_cases([2], ["1gbit"], [label], periods, (repetitions, 16, 2))
