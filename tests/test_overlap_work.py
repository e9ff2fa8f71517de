"""What lies between start and done is measured, not just that something does."""

import pytest

from olsgd_jax.overlap import overlap_report
from tests.programs import LOOP, PAIRS, STEP_FLOPS, program

KERNEL = '%k = f32[8]{0} custom-call(%v), custom_call_target="tpu_custom_call"'
BUFFER = '%k = f32[8]{0} custom-call(%v), custom_call_target="AllocateBuffer"'
SMALL = "%small (p: f32[100]) -> f32[] {\n  ROOT %p = f32[] parameter(0)\n}\n"


def between(line, computations=""):
    """What is found of an all-reduce that starts before and ends after the line."""
    start, done = PAIRS["all-reduce-start"]
    text = program(start, line, done, computations=computations)
    (found,) = overlap_report(text).collectives
    return found


def test_a_convolution_counts_its_result_times_what_it_sums():
    image = "%image = f32[2,10,10,3]{3,2,1,0} parameter(2)"
    kernel = "%kernel = f32[5,5,3,7]{3,2,1,0} parameter(3)"
    line = "%c = f32[2,6,6,7]{3,2,1,0} convolution(%image, %kernel), "
    found = between("\n".join([image, kernel, line + "dim_labels=b01f_01io->b01f"]))
    assert found.flops_between == 2 * (2 * 6 * 6 * 7) * (5 * 5 * 3)


@pytest.mark.parametrize(
    ("call", "operands", "result"),
    [
        ("convForward", ("2,10,10,3", "7,5,5,3"), "2,6,6,7"),
        ("convBackwardInput", ("2,6,6,7", "7,5,5,3"), "2,10,10,3"),
        ("convBackwardFilter", ("2,10,10,3", "2,6,6,7"), "7,5,5,3"),
    ],
)
def test_the_passes_of_a_convolution_on_a_gpu_count_the_same(call, operands, result):
    a, b = (
        f"%{x} = f32[{y}] parameter(5)" for x, y in zip("ab", operands, strict=True)
    )
    line = f"%c = (f32[{result}], u8[0]) custom-call(%a, %b), "
    line += f'dim_labels=b01f_o01i->b01f, custom_call_target="__cudnn${call}"'
    found = between("\n".join([a, b, line]))
    assert found.flops_between == 2 * (2 * 6 * 6 * 7) * (5 * 5 * 3)


def test_a_dot_in_a_gpu_library_counts_as_a_dot():
    x, w = "%x = f32[8,32] parameter(5)", "%w = f32[32,16] parameter(6)"
    line = '%y = (f32[8,16], s8[99]) custom-call(%x, %w), custom_call_target="__cublas'
    line += '$gemm", backend_config={"lhs_contracting_dimensions":["1"]}'
    assert between("\n".join([x, w, line])).flops_between == STEP_FLOPS


def test_a_loop_without_a_known_count_counts_as_its_condition_says():
    assert between(LOOP.split(", backend_config")[0]).flops_between == 4 * STEP_FLOPS


def test_a_loop_whose_condition_is_not_a_count_counts_once():
    loop = LOOP.split(", backend_config")[0].replace("%unfinished", "%small")
    assert between(loop, SMALL).flops_between == STEP_FLOPS


def test_of_two_branches_the_smaller_counts():
    line = "%c = f32[] conditional(%v, %state, %v), branch_computations={%step, %small}"
    assert between(line, SMALL).exposed
    assert not between(line.replace("%small", "%step")).exposed


CHOICE = "%c = f32[] conditional(%by, %state, %v), "
NUMBERED = CHOICE + "branch_computations={%small, %step}"
TRUE_OR_FALSE = CHOICE + "true_computation=%step, false_computation=%small"


@pytest.mark.parametrize(
    ("by", "line", "exposed"),
    [
        ("s32[] constant(0)", NUMBERED, True),
        ("s32[] constant(1)", NUMBERED, False),
        ("s32[] constant(7)", NUMBERED, False),  # any other number: the last
        ("s32[] constant(-1)", NUMBERED, False),
        ("pred[] constant(true)", TRUE_OR_FALSE, False),
        ("pred[] constant(false)", TRUE_OR_FALSE, True),
        ("s32[] parameter(7)", NUMBERED, True),
    ],
)
def test_a_branch_counts_if_a_constant_chooses_it(by, line, exposed):
    assert between(f"%by = {by}\n{line}", SMALL).exposed == exposed


@pytest.mark.parametrize(
    ("first", "by", "after", "exposed"),
    [
        ("constant(true)", "%given", "%given", False),
        ("constant(false)", "%given", "%given", True),
        ("constant(true)", "%given", "%another", True),  # from the second pass on
        ("parameter(7)", "%given", "%given", True),
        ("constant(true)", "%made", "%given", True),  # at the same place of another
    ],
)
def test_a_loop_may_hand_on_what_chooses_a_branch(first, by, after, exposed):
    start, done = PAIRS["all-reduce-start"]
    body = f"""
%body (carried: (pred[], f32[100])) -> (pred[], f32[100]) {{
  %carried = (pred[], f32[100]{{0}}) parameter(0)
  %given = pred[] get-tuple-element(%carried), index=0
  %another = pred[] not(%given)
  %others = (pred[], pred[]) tuple(%another, %given)
  %made = pred[] get-tuple-element(%others), index=0
  %by = s32[] convert({by})
  {start}
  {NUMBERED}
  {done}
  ROOT %after = (pred[], f32[100]{{0}}) tuple({after}, %end)
}}
"""
    lines = f"""%first = pred[] {first}
%all = (pred[], f32[100]{{0}}) tuple(%first, %v)
%loop = (pred[], f32[100]{{0}}) while(%all), condition=%unfinished, body=%body"""
    (found,) = overlap_report(program(lines, computations=SMALL + body)).collectives
    assert found.exposed == exposed


@pytest.mark.parametrize(("width", "exposed"), [(1, True), (16, False)])
def test_next_to_nothing_does_not_hide_a_collective(width, exposed):
    # Beside a loop of 4 steps this is a 65th, or a fifth, of all flops.
    start, done = PAIRS["all-reduce-start"]
    x, w = "%x = f32[8,32]{1,0} parameter(2)", f"%w = f32[32,{width}] parameter(3)"
    dot = f"%y = f32[8,{width}]{{1,0}} dot(%x, %w), lhs_contracting_dims={{1}}"
    (found,) = overlap_report(program(x, w, start, dot, done, LOOP)).collectives
    assert found.flops_between == 2 * 8 * 32 * width
    assert found.exposed == exposed


def test_a_small_collective_needs_little_to_hide_behind():
    start, done = PAIRS["all-reduce-start"]
    x, w = "%x = f32[8,32]{1,0} parameter(2)", "%w = f32[32,1] parameter(3)"
    dot = "%y = f32[8,1]{1,0} dot(%x, %w), lhs_contracting_dims={1}"
    rest = "%all = f32[900]{0} parameter(4)\n%sum = f32[900]{0} all-reduce(%all)"
    small, _ = overlap_report(program(x, w, start, dot, done, LOOP, rest)).collectives
    assert not small.exposed


def test_where_nothing_is_counted_a_loop_is_enough():
    found = between(LOOP.replace("body=%step", "body=%small"), SMALL)
    assert (found.loops_between, found.flops_between) == (1, 0)
    assert not found.exposed


@pytest.mark.parametrize(("line", "exposed"), [(KERNEL, False), (BUFFER, True)])
def test_custom_calls_count_if_they_compute(line, exposed):
    assert between(line).exposed == exposed


def test_a_collective_in_a_loop_counts_once_a_pass():
    start, done = PAIRS["all-reduce-start"]
    body = f"""
%body (s: f32[100]) -> f32[100] {{
  %v = f32[100]{{0}} parameter(0)
  %state = (s32[], f32[8,32]{{1,0}}, f32[32,16]{{1,0}}) parameter(1)
  {start}
  %inner = f32[8,16]{{1,0}} call(%state), to_apply=%step
  ROOT {done}
}}
"""
    text = program(LOOP.replace("body=%step", "body=%body"), computations=body)
    (found,) = overlap_report(text).collectives
    assert (found.bytes, found.flops_between) == (4 * 400, 4 * STEP_FLOPS)
    assert (found.where, found.exposed) == ("body/go", False)


def held(name, collective, last):
    """A computation that is fused around a fragment of a collective and a step."""
    return f"""
%{name} (p: f32[100], s: (s32[])) -> f32[100] {{
  %p = f32[100]{{0}} parameter(0)
  %x = f32[8,32]{{1,0}} parameter(1)
  %w = f32[32,16]{{1,0}} parameter(2)
  {collective}
  {last}
}}
"""


REDUCE = (
    "%sum = f32[100]{0} all-reduce(%p), channel_id=1, to_apply=%add, "
    'frontend_attributes={chain_id="0"}, backend_config='
    '{"async_collective_fusion_config":{"flag_start":"2"}}'
)
DOT = "%y = f32[8,16]{1,0} dot(%x, %w), lhs_contracting_dims={1}"
CALL = 'ROOT %c = f32[100]{0} custom-call(%sum), custom_call_target="Async'
FUSED = (
    held("starts", REDUCE, CALL + 'CollectiveStart"')
    + held("carries", REDUCE, DOT)
    + held("carries_another", REDUCE.replace("channel_id=1", "channel_id=2"), DOT)
    + held("ends", REDUCE, CALL + 'CollectiveDone"')
    + """
%carrying_step (s: f32[100]) -> f32[100] {
  %s = f32[100]{0} parameter(0)
  %on = f32[100]{0} fusion(%s), kind=kOutput, calls=%carries
}
"""
)
GO = "%go = f32[100]{0} fusion(%v), kind=kCustom, calls=%starts"
END = "%end = f32[100]{0} fusion(%go), kind=kCustom, calls=%ends"
CARRY = "%on = f32[100]{0} fusion(%go), kind=kOutput, calls=%carries"


@pytest.mark.parametrize(
    ("line", "loops", "flops"),
    [
        (CARRY, 0, STEP_FLOPS),
        (LOOP.replace("body=%step", "body=%carrying_step"), 1, 4 * STEP_FLOPS),
    ],
)
def test_a_collective_overlaps_with_the_fusions_that_carry_it(line, loops, flops):
    text = program(GO, line, LOOP.replace("%steps", "%more"), END, computations=FUSED)
    (found,) = overlap_report(text).collectives
    assert (found.kind, found.bytes) == ("fusion all-reduce", 400)
    assert (found.loops_between, found.flops_between) == (loops, flops)
    assert not found.exposed


@pytest.mark.parametrize("line", [LOOP, CARRY.replace("carries", "carries_another")])
def test_a_collective_that_nothing_carries_is_exposed(line):
    text = program(GO, line, END, computations=FUSED)
    (found,) = overlap_report(text).collectives
    assert found.exposed


def test_collectives_that_fusions_carry_do_not_end_each_other():
    second = FUSED.replace("channel_id=1", "channel_id=2")
    for role in ("starts", "ends"):
        second = second.replace(f"%{role} ", f"%{role}_second ")
    go = "%go.2 = f32[100]{0} fusion(%v), kind=kCustom, calls=%starts_second"
    end = "%end.2 = f32[100]{0} fusion(%go.2), kind=kCustom, calls=%ends_second"
    text = program(GO, go, end, CARRY, END, computations=second + FUSED)
    first, other = overlap_report(text).collectives
    assert (first.exposed, other.exposed) == (False, True)
