"""The report adds up, and the assertion says what to change."""

import jax
import jax.numpy as jnp
import pytest

from olsgd_jax import on_workers, worker_mean, worker_mesh
from olsgd_jax.overlap import OverlapReport, assert_overlapped, overlap_report
from tests.programs import LOOP, PAIRS, STEP_FLOPS, program

START, DONE = PAIRS["all-reduce-start"]
CALL_START, CALL_DONE = PAIRS["call-start all-reduce"]
WAITS = "%sum = f32[300]{0} all-reduce(%all), channel_id=2, to_apply=%add"
GPU = ', backend_config={"operation_queue_id":"0"}'
TILED = "%tiled = f32[8,128]{1,0:T(8,128)} parameter(2)"
BLOCKED = "%late = f32[9] tuple(%steps)\n%sum.2 = f32[9] all-reduce(%late)"
LATE = "%all = f32[300]{0} get-tuple-element(%steps), index=1"
EXPOSED = "%all = f32[300]{0} parameter(3)\n" + WAITS


def test_the_fraction_is_of_bytes():
    report = overlap_report(program(START, LOOP, DONE, EXPOSED))
    assert [x.exposed for x in report.collectives] == [False, True]
    assert (report.mean_bytes, report.overlapped_bytes) == (1600, 400)
    assert report.overlapped_fraction == 0.25


def test_an_exchange_counts_half_of_a_sum():
    text = """HloModule exchanged, is_scheduled=true
ENTRY %main (x: f32[8,25]) -> f32[8,25] {
  %x = f32[8,25]{1,0} parameter(0)
  %sum = f32[8,25]{1,0} all-reduce(%x), replica_groups=[1,8]<=[8], to_apply=%add
  %added = f32[8,25]{1,0} all-to-all(%sum), replica_groups=[1,8]<=[8], dimensions={0}
  %own = f32[1,25]{1,0} slice(%added), slice={[0:1], [0:25]}
  ROOT %shared = f32[8,25]{1,0} all-gather(%own), replica_groups=[1,8]<=[8], \
dimensions={0}
}"""
    report = overlap_report(text)
    assert [x.bytes for x in report.collectives] == [800, 800, 800]
    assert report.mean_bytes == 800 + 400 + 400


def test_all_of_the_programs_flops_are_counted():
    report = overlap_report(program(START, LOOP, DONE, LOOP.replace("steps", "more")))
    assert report.collectives[0].flops_between == 4 * STEP_FLOPS
    assert report.program_flops == 8 * STEP_FLOPS


def test_a_program_that_sends_nothing_overlaps_nothing():
    assert OverlapReport((), 0, 0).overlapped_fraction == 0
    with pytest.raises(AssertionError, match="no collective between workers"):
        assert_overlapped(program(LOOP))


def test_an_overlapped_program_passes():
    assert_overlapped(program(START, LOOP, DONE))


def test_how_much_has_to_overlap_is_the_callers_choice():
    text = program(START, LOOP, DONE, EXPOSED)
    assert_overlapped(text, at_least=0.25)
    with pytest.raises(AssertionError, match=r"400 of 1,600 bytes .*\(25 %\)"):
        assert_overlapped(text, at_least=0.26)


def test_the_message_names_what_is_exposed():
    with pytest.raises(AssertionError) as error:
        assert_overlapped(program(START, LOOP, DONE, EXPOSED))
    exposed = "exposed: all-reduce of 1,200 bytes (main/sum) overlaps 0 of 32,768 flops"
    assert exposed in str(error.value)
    assert "all-reduce-start" not in str(error.value)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ((START + GPU, DONE, LOOP), ["one flat vector", "collective_overlap_limit"]),
        ((TILED, EXPOSED), ["async_collective_fusion", "sparse_core", "barrier"]),
        ((TILED, CALL_START, CALL_DONE, LOOP), ["optimization_barrier"]),
        ((EXPOSED,), ["GPU: ", "CPU: ", "TPU v5e: ", "other TPUs: "]),
        ((EXPOSED, LOOP, BLOCKED), ["GPU: ", "CPU: "]),
        ((LOOP, LATE, WAITS), ["no option can help", "overlap_local_sgd"]),
    ],
    ids=[
        "gpu",
        "tpu",
        "tpu that starts too late",
        "unknown",
        "one blocked",
        "all blocked",
    ],
)
def test_the_message_says_what_would_change_it(lines, words):
    with pytest.raises(AssertionError) as error:
        assert_overlapped(program(*lines))
    last = str(error.value).splitlines()[-1]
    assert [word for word in words if word not in last] == []


def test_a_start_that_comes_too_late_is_not_told_to_start():
    with pytest.raises(AssertionError) as error:
        assert_overlapped(program(TILED, CALL_START, CALL_DONE, LOOP))
    assert "compiler_options" not in str(error.value)


def test_on_a_cpu_a_program_is_told_to_become_two():
    mean = jax.jit(on_workers(worker_mean, worker_mesh(4)))
    compiled = mean.lower(jnp.ones((4, 10), jnp.float32)).compile()
    (found,) = overlap_report(compiled).collectives
    assert (found.kind, found.bytes, found.exposed) == ("all-reduce", 40, True)
    with pytest.raises(AssertionError, match=r"\n  on a CPU .* thread \(driver host\)"):
        assert_overlapped(compiled)


# As batch norm with axis_name: between one convolution, here a loop, and the next.
AMID = "\n".join(
    [
        LOOP,
        "%stats = f32[2]{0} get-tuple-element(%steps), index=1",
        "%sums = f32[2]{0} all-reduce(%stats), channel_id=3, to_apply=%add" + GPU,
        "%scaled = (s32[], f32[8,32]{1,0}, f32[32,16]{1,0}) tuple(%sums)",
        LOOP.replace("%steps", "%more").replace("%state", "%scaled"),
    ]
)


def test_collectives_of_the_forward_pass_are_named_as_the_cause():
    with pytest.raises(
        AssertionError, match="waits for 1 of them, of 8 bytes"
    ) as error:
        assert_overlapped(program(EXPOSED, AMID))
    said = str(error.value)
    assert "(main/sums)" in said
    assert "batch norm with axis_name" in said
    assert 'model_state_policy="averaged"' in said
    assert "xla_gpu_experimental_parallel_collective_overlap_limit" in said


def test_a_collective_that_nothing_waits_for_is_not_of_the_forward_pass():
    last = AMID.partition("%scaled")[0]
    (sums,) = overlap_report(program(last)).collectives
    assert (sums.blocked, sums.needed, sums.is_amid) == (True, False, False)
    with pytest.raises(AssertionError, match="no option can help"):
        assert_overlapped(program(last))


def test_a_collective_of_the_programs_inputs_is_not_of_the_forward_pass():
    first = AMID.partition("%steps = ")[0] + AMID.partition("index=1\n")[2]
    (sums,) = overlap_report(program(first.replace("%stats", "%v"))).collectives
    assert (sums.blocked, sums.needed, sums.is_amid) == (False, True, False)
