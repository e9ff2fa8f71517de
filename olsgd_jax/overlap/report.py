"""Reports how much of a compiled program's communication overlaps computation.

"Exposed" and "overlapped" describe the schedule. An overlapped collective starts
before independent computation and is waited for after it. With a fraction s of the
program's bytes, it must span at least s / 10 of the program's computation. Whether
that is long enough to hide it depends on the bandwidth.
"""

from typing import NamedTuple

import jax
from jax.stages import Compiled

from olsgd_jax.overlap.advice import advice
from olsgd_jax.overlap.collectives import Collective, find_collectives
from olsgd_jax.overlap.hlo.schedule import read_schedule
from olsgd_jax.overlap.hlo.work import work_of


class OverlapReport(NamedTuple):
    """What a program sends, and how much of that overlaps its computation.

    >>> from olsgd_jax.overlap import OverlapReport
    >>> OverlapReport((), mean_bytes=400, overlapped_bytes=300).overlapped_fraction
    0.75
    """

    collectives: tuple[Collective, ...]
    # Of all collectives between workers, counted as `payload_bytes` counts them: an
    # exchange sends each byte once, an all-reduce twice, so an exchange counts half.
    mean_bytes: int
    overlapped_bytes: int  # of the collectives between workers that are not exposed
    program_flops: int = 0  # the whole of which `flops_between` is a part

    @property
    def overlapped_fraction(self) -> float:
        """The overlapped fraction of the bytes; 0 for a program that sends none."""
        return self.overlapped_bytes / max(1, self.mean_bytes)


def overlap_report(compiled: Compiled | str, worker_devices: int = 1) -> OverlapReport:
    """Reads from a compiled program which of its communication overlaps.

    Args:
      compiled: a compiled jax function, or its text. It may be compiled for hardware
        that is not here: see `target`.
      worker_devices: number of devices per worker. Collectives between the devices of
        a worker are listed, but not counted.

    >>> import jax, jax.numpy as jnp
    >>> from olsgd_jax import on_workers, worker_mean, worker_mesh
    >>> from olsgd_jax.overlap import overlap_report
    >>> mean = jax.jit(on_workers(worker_mean, worker_mesh(1)))
    >>> overlap_report(mean.lower(jnp.ones((1, 8))).compile()).overlapped_bytes
    0
    """
    schedule = read_schedule(_text(compiled))
    collectives = find_collectives(schedule, worker_devices)
    between = [x for x in collectives if not x.inside]
    return OverlapReport(
        collectives,
        mean_bytes=sum(map(_sent, between)),
        overlapped_bytes=sum(_sent(x) for x in between if not x.exposed),
        program_flops=work_of(schedule, schedule.computations[schedule.entry]).flops,
    )


def assert_overlapped(
    compiled: Compiled | str, at_least: float = 0.99, worker_devices: int = 1
) -> None:
    """Raises unless a program's communication overlaps with its computation.

    Args:
      compiled: a compiled jax function, or its text.
      at_least: the fraction of its bytes that must overlap, in [0, 1].
      worker_devices: see `overlap_report`.

    Raises:
      AssertionError: names the exposed collectives and says how to fix them.

    >>> from olsgd_jax.overlap import assert_overlapped
    >>> assert_overlapped('''HloModule blocking, is_scheduled=true
    ... ENTRY %main (x: f32[8]) -> f32[8] {
    ...   %x = f32[8]{0} parameter(0)
    ...   ROOT %mean = f32[8]{0} all-reduce(%x), channel_id=1, to_apply=%add
    ... }''')
    Traceback (most recent call last):
    AssertionError: 0 of 32 bytes overlap with computation (0 %)
      the program has no matrix product to overlap with
      exposed: all-reduce of 32 bytes (main/mean) overlaps 0 of 0 flops
      ...
    """
    report = overlap_report(compiled, worker_devices)
    if not report.mean_bytes:
        raise AssertionError(
            "the program has no collective between workers, so nothing overlaps; "
            "compile it for a mesh of more than one worker"
        )
    if report.overlapped_fraction >= at_least:
        return
    between = tuple(x for x in report.collectives if not x.inside)
    lines = [
        f"{report.overlapped_bytes:,} of {report.mean_bytes:,} bytes overlap with "
        f"computation ({report.overlapped_fraction:.0%})".replace("%", " %"),
        *(
            f"  exposed: {x.kind} of {x.bytes:,} bytes ({x.where}) overlaps "
            f"{x.flops_between:,} of {report.program_flops:,} flops"
            for x in between
            if x.exposed
        ),
        "  " + advice(_device(compiled), between, worker_devices),
    ]
    if not report.program_flops:
        lines.insert(1, "  the program has no matrix product to overlap with")
    raise AssertionError("\n".join(lines))


def _sent(collective: Collective) -> int:
    is_exchange = any(x in collective.kind for x in ("all-to-all", "all-gather"))
    return collective.bytes // 2 if is_exchange else collective.bytes


def _text(compiled: Compiled | str) -> str:
    text = compiled if isinstance(compiled, str) else compiled.as_text()
    if text is None:
        raise ValueError("compiled must have a text, got None from as_text()")
    return text


def _device(compiled: Compiled | str) -> str:
    """Names the platform and kind of a program's devices, as in "tpu TPU v5 lite"."""
    if isinstance(compiled, Compiled):
        sharding = jax.tree.leaves(compiled.input_shardings)[0]
        device = min(sharding.device_set, key=lambda device: device.id)
        return f"{device.platform} {device.device_kind}"
    if ":T(" in _text(compiled):  # tiled layouts
        return "tpu"
    return "gpu" if "operation_queue_id" in _text(compiled) else "unknown"
