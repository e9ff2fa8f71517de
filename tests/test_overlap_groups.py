"""Collectives inside of a worker, and between workers."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from olsgd_jax import on_workers, worker_mean, worker_mesh
from olsgd_jax.overlap import assert_overlapped, overlap_report, read_schedule
from olsgd_jax.overlap.hlo.groups import is_inside


def collective(attributes, opcode="all-reduce"):
    text = f"""HloModule sent, is_scheduled=true
ENTRY %main (x: f32[8]) -> f32[8] {{
  %x = f32[8]{{0}} parameter(0)
  ROOT %sum = f32[8]{{0}} {opcode}(%x), channel_id=1, {attributes}
}}"""
    return read_schedule(text).computations["main"][1]


@pytest.mark.parametrize(
    ("attributes", "inside_of_4"),
    [
        ("replica_groups={{0,1,2,3},{4,5,6,7}}", True),
        ("replica_groups={{0,1},{2,3},{4,5},{6,7}}", True),
        ("replica_groups={{0,4},{1,5},{2,6},{3,7}}", False),
        ("replica_groups={{0,1,2,3,4,5,6,7}}", False),
        ("replica_groups={}", False),
        ("replica_groups=[2,4]<=[8]", True),
        ("replica_groups=[4,2]<=[8]", True),
        ("replica_groups=[4,2]<=[2,4]T(1,0)", False),
        ("replica_groups=[4,2]<=[2,2,2]T(0,2,1)", True),
        ("replica_groups=[1,8]<=[8]", False),
        ("replica_groups=mesh['a'=2,'b'=4] {'b'}", True),
        ("replica_groups=mesh['a'=2,'b'=4] {'a'}", False),
        ("replica_groups=mesh['a'=2,'b'=4] {'a','b'}", False),
        ("replica_groups=mesh['a'=2,'b'=2,'c'=2] {'b'}", True),
        ("replica_groups=mesh['a'=2,'b'=2,'c'=2] {'b','c'}", True),
        ("replica_groups=mesh['a'=2,'b'=2,'c'=2] {'a','c'}", False),
        ("replica_groups=mesh['a'=8] {'a':(1)2}", False),  # part of an axis: not read
        ("to_apply=%add", False),
    ],
)
def test_a_worker_is_a_block_of_devices(attributes, inside_of_4):
    assert is_inside(collective(attributes), worker_devices=4) == inside_of_4


@pytest.mark.parametrize(
    ("pairs", "inside"), [("{{0,1},{1,0},{2,3}}", True), ("{{1,2},{2,1}}", False)]
)
def test_pairs_of_a_permute_are_groups(pairs, inside):
    permute = collective(f"source_target_pairs={pairs}", "collective-permute")
    assert is_inside(permute, worker_devices=2) == inside


def test_what_the_devices_of_a_worker_send_each_other_is_listed_and_not_counted():
    text = """HloModule both, is_scheduled=true
ENTRY %main (x: f32[100]) -> f32[100] {
  %x = f32[100]{0} parameter(0)
  %within = f32[100]{0} all-reduce(%x), replica_groups={{0,1},{2,3}}, to_apply=%add
  ROOT %between = f32[100]{0} all-reduce(%x), replica_groups={{0,2},{1,3}}, \
to_apply=%add
}"""
    report = overlap_report(text, worker_devices=2)
    assert [x.inside for x in report.collectives] == [True, False]
    assert report.mean_bytes == 400
    assert overlap_report(text).mean_bytes == 800
    with pytest.raises(AssertionError) as error:
        assert_overlapped(text, worker_devices=2)
    assert "main/between" in str(error.value)
    assert "main/within" not in str(error.value)


def test_compiled_programs_say_which_is_which():
    mesh = worker_mesh(2, data=4)

    def one(x):
        return worker_mean(jnp.sum(x))

    x = jax.ShapeDtypeStruct(
        (2, 16), jnp.float32, sharding=NamedSharding(mesh, PartitionSpec(None, "data"))
    )
    compiled = jax.jit(on_workers(one, mesh)).lower(x).compile()
    report = overlap_report(compiled, worker_devices=4)
    assert sorted(x.inside for x in report.collectives) == [False, True]
