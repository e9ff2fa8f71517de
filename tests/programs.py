"""Short scheduled programs, in the words that compilers use."""

# One pass through a training loop: an (8, 32) batch times a (32, 16) matrix.
STEP = """
%step (s: (s32[], f32[8,32], f32[32,16])) -> (s32[], f32[8,32], f32[32,16]) {
  %s = (s32[], f32[8,32]{1,0}, f32[32,16]{1,0}) parameter(0)
  %x = f32[8,32]{1,0} get-tuple-element(%s), index=1
  %w = f32[32,16]{1,0} get-tuple-element(%s), index=2
  %y = f32[8,16]{1,0} dot(%x, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT %next = (s32[], f32[8,32]{1,0}, f32[32,16]{1,0}) tuple(%s)
}

%unfinished (s: (s32[], f32[8,32], f32[32,16])) -> pred[] {
  %s = (s32[], f32[8,32]{1,0}, f32[32,16]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %four = s32[] constant(4)
  ROOT %less = pred[] compare(%i, %four), direction=LT
}
"""
STEP_FLOPS = 2 * 8 * 32 * 16

LOOP = """
%steps = (s32[], f32[8,32]{1,0}, f32[32,16]{1,0}) while(%state), \
condition=%unfinished, body=%step, \
backend_config={"known_trip_count":{"n":"4"},"dynamic_variables":[]}"""

CALLED = """
%called (p: f32[100]) -> f32[100] {
  %p = f32[100]{0} parameter(0)
  ROOT %sum = f32[100]{0} all-reduce(%p), channel_id=1, to_apply=%add
}

%scattered (p: f32[100]) -> f32[25] {
  %p = f32[100]{0} parameter(0)
  ROOT %sum = f32[25]{0} reduce-scatter(%p), channel_id=1, to_apply=%add
}
"""

# Start and done of a collective of 400 bytes, as printed, by the kind reported.
PAIRS = {
    "all-reduce-start": (
        "%go = f32[100]{0} all-reduce-start(%v), channel_id=1, to_apply=%add",
        "%end = f32[100]{0} all-reduce-done(%go)",
    ),
    "all-gather-start": (
        "%go = (f32[25]{0}, f32[100]{0}) all-gather-start(%part), dimensions={0}",
        "%end = f32[100]{0} all-gather-done(%go)",
    ),
    "collective-permute-start": (
        "%go = (f32[100]{0}, f32[100]{0}, u32[], u32[]) collective-permute-start(%v)",
        "%end = f32[100]{0:T(128)S(1)} collective-permute-done(%go)",
    ),
    "call-start all-reduce": (
        "%go = ((f32[100]{0}, token[]), f32[100]{0}) call-start(%v, %v), "
        'async_execution_thread="sparsecore", to_apply=%called',
        "%end = f32[100]{0} call-done(%go)",
    ),
    "async-start reduce-scatter": (
        "%go = ((f32[100]{0}), f32[25]{0}, u32[]) async-start(%v), calls=%scattered",
        "%on = ((f32[100]{0}), f32[25]{0}, u32[]) async-update(%go)\n"
        "%end = f32[25]{0} async-done(%on)",
    ),
}

# A sparse core's call since libtpu 0.0.50: prepared first, given what to send later.
PREPARED, GIVEN, CALL_DONE = (
    "%go = ((), (), (s32[1]{0})) call-start(), "
    'async_execution_thread="sparsecore", to_apply=%called',
    "%given = ((f32[100]{0}), f32[100]{0}) call-update(%go, %v)",
    "%end = f32[100]{0} call-done(%given)",
)


def program(*lines, computations=""):
    """A program that runs the lines in this order."""
    body = "\n".join(f"  {x}" for x in "\n".join(lines).split("\n") if x)
    return f"""HloModule jit_round, is_scheduled=true, num_partitions=8

FileNames
1 "round.py"
{STEP}{CALLED}{computations}
ENTRY %main (v: f32[100]) -> f32[100] {{
  %v = f32[100]{{0}} parameter(0)
  %part = f32[25]{{0}} parameter(9)
  %state = (s32[], f32[8,32]{{1,0}}, f32[32,16]{{1,0}}) parameter(1)
{body}
}}
"""
