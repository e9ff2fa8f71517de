"""The reader of scheduled programs says yes and no where it should."""

import pytest

from olsgd_jax.overlap import overlap_report, read_schedule
from olsgd_jax.overlap.hlo.shapes import shape_bytes
from tests.programs import (
    CALL_DONE,
    GIVEN,
    LOOP,
    PAIRS,
    PREPARED,
    STEP_FLOPS,
    program,
)

NOT_COMPUTING = "%copy = f32[100]{0} copy(%v)"


def collectives(*lines, computations=""):
    return overlap_report(program(*lines, computations=computations)).collectives


def test_instructions_are_read_in_order_with_what_they_call():
    schedule = read_schedule(program(NOT_COMPUTING, LOOP))
    *_, copy, loop = schedule.computations[schedule.entry]
    assert (copy.name, copy.opcode, copy.operands) == ("copy", "copy", ("v",))
    assert (copy.inputs, copy.bytes) == (("f32[100]{0}",), 400)
    assert (loop.opcode, loop.called) == ("while", ("unfinished", "step"))


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ("f32[]", 4),
        ("bf16[4,32,512]{2,1,0:T(8,128)(2,1)S(1)}", 2 * 4 * 32 * 512),
        ("(f32[3]{0}, (s8[5], pred[2]), /*index=3*/u32[]{:S(2)}, token[])", 23),
        ("f8e4m3fn[16]", 16),
        ("s4[16]", 8),
        ("f32[0,8]", 0),
    ],
)
def test_shapes_have_their_size_without_padding(shape, expected):
    assert shape_bytes(shape) == expected


def test_the_program_starts_at_its_entry_wherever_that_stands():
    text = program(NOT_COMPUTING) + "\n%last (p: f32[]) -> f32[] {\n}\n"
    assert read_schedule(text).entry == "main"


def test_only_a_scheduled_program_is_read():
    with pytest.raises(ValueError, match=r"scheduled HLO module, got 'HloModule f'"):
        read_schedule("HloModule f\n")
    with pytest.raises(ValueError, match="text must have an ENTRY computation"):
        read_schedule("HloModule f, is_scheduled=true\n")


@pytest.mark.parametrize("kind", PAIRS)
def test_a_collective_around_the_loop_overlaps(kind):
    start, done = PAIRS[kind]
    (found,) = collectives(start, LOOP, done)
    assert (found.kind, found.bytes, found.where) == (kind, 400, "main/go")
    assert (found.loops_between, found.flops_between) == (1, 4 * STEP_FLOPS)
    assert not found.exposed


@pytest.mark.parametrize("kind", PAIRS)
def test_a_collective_that_ends_before_the_loop_is_exposed(kind):
    start, done = PAIRS[kind]
    (found,) = collectives(start, NOT_COMPUTING, done, LOOP)
    assert found.exposed
    assert (found.loops_between, found.flops_between) == (0, 0)


def test_a_synchronous_collective_is_exposed():
    line = "%end = f32[100]{0} all-reduce(%v), channel_id=1, to_apply=%add"
    (found,) = collectives(LOOP, line)
    assert (found.kind, found.bytes, found.exposed) == ("all-reduce", 400, True)


def test_a_synchronous_collective_in_a_fusion_is_exposed():
    line = "%end = f32[25]{0} fusion(%v), kind=kCustom, calls=%scattered"
    (found,) = collectives(line, LOOP)
    assert (found.kind, found.bytes) == ("fusion reduce-scatter", 400)
    assert found.exposed


def test_a_start_that_says_it_waits_is_exposed():
    start, done = PAIRS["all-reduce-start"]
    waits = ', backend_config={"collective_backend_config":{"is_sync":true}}'
    (found,) = collectives(start + waits, LOOP, done)
    assert found.exposed


def test_a_start_whose_done_is_not_seen_is_exposed():
    start, _ = PAIRS["all-reduce-start"]
    (found,) = collectives(start, LOOP)
    assert (found.bytes, found.exposed) == (400, True)


def test_each_start_has_its_own_done():
    start, done = PAIRS["all-reduce-start"]
    other = start.replace("%go", "%go.2"), done.replace("%go", "%go.2")
    first, second = collectives(start, other[0], done, LOOP, other[1])
    assert (first.exposed, second.exposed) == (True, False)


def test_a_call_that_is_prepared_begins_where_it_is_given_what_to_send():
    (free,) = collectives(PREPARED, GIVEN, LOOP, CALL_DONE)
    assert (free.kind, free.bytes) == ("call-start all-reduce", 400)
    assert (free.flops_between, free.exposed, free.blocked) == (
        4 * STEP_FLOPS,
        False,
        False,
    )
    (late,) = collectives(PREPARED, LOOP, GIVEN, CALL_DONE)
    assert (late.flops_between, late.exposed, late.blocked) == (0, True, False)


def test_a_call_that_is_prepared_is_blocked_by_what_it_is_given():
    loop_result = "%late = f32[100]{0} get-tuple-element(%steps), index=1"
    given = GIVEN.replace("%v", "%late")
    (found,) = collectives(PREPARED, LOOP, loop_result, given, CALL_DONE)
    assert (found.exposed, found.blocked) == (True, True)


def test_only_what_needs_nothing_computed_can_be_helped():
    loop_result = "%late = f32[100]{0} get-tuple-element(%steps), index=1"
    line = "%end = f32[100]{0} all-reduce(%late), channel_id=1, to_apply=%add"
    (blocked,) = collectives(LOOP, loop_result, line)
    (free,) = collectives(LOOP, line.replace("%late", "%v"))
    assert (blocked.blocked, free.blocked) == (True, False)
