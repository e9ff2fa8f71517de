"""Finds a program's collectives, and says which of them are exposed."""

from collections.abc import Iterator
from typing import NamedTuple

from olsgd_jax.overlap.hlo.groups import is_inside
from olsgd_jax.overlap.hlo.schedule import Schedule
from olsgd_jax.overlap.hlo.shapes import shape_bytes
from olsgd_jax.overlap.hlo.spans import (
    is_blocked,
    is_needed,
    started,
    until_done,
    work_between,
)
from olsgd_jax.overlap.hlo.work import Work, add_work, trip_count, work_of


class Collective(NamedTuple):
    """One collective of a program.

    For a collective in a loop, bytes and flops are summed over all passes.

    >>> from olsgd_jax.overlap import Collective
    >>> Collective("all-reduce", 4096, "main/all-reduce.1", 0, 0, exposed=True).bytes
    4096
    """

    kind: str  # as printed; "call-start all-reduce" is a call of an all-reduce
    bytes: int  # size of its input or output, whichever is larger
    where: str  # computation/instruction
    loops_between: int  # while loops between start and done
    flops_between: int  # of dots and convolutions between start and done
    exposed: bool  # (almost) no computation runs between start and done
    blocked: bool = False  # its input was computed in the same run of the computation
    inside: bool = False  # between the devices of one worker, not between workers
    needed: bool = False  # computation in the same run depends on its output

    @property
    def is_amid(self) -> bool:
        """Whether computation waits for it in between, as in synchronous batch norm."""
        return self.blocked and self.needed


class _Found(NamedTuple):
    kind: str
    bytes: int
    where: str
    between: Work
    blocked: bool
    inside: bool
    needed: bool


def find_collectives(
    schedule: Schedule, worker_devices: int = 1
) -> tuple[Collective, ...]:
    """Lists the collectives that a program runs, in the order of the schedule.

    A collective that ends in another computation than it starts in counts as exposed,
    because its span is unknown. A loop that waits for the collective of its previous
    pass has one.
    """
    all_found = list(_find(schedule, schedule.entry, 1, worker_devices))
    all_work = work_of(schedule, schedule.computations[schedule.entry])
    all_bytes = {
        inside: sum(found.bytes for found in all_found if found.inside == inside)
        for inside in (False, True)
    }

    def share(found: _Found) -> float:
        return found.bytes / (all_bytes[found.inside] or 1)

    return tuple(
        Collective(
            found.kind,
            found.bytes,
            found.where,
            loops_between=found.between.loops,
            flops_between=found.between.flops,
            exposed=not _hides(found.between, all_work, share(found)),
            blocked=found.blocked,
            inside=found.inside,
            needed=found.needed,
        )
        for found in all_found
    )


def _hides(between: Work, all_work: Work, share_of_bytes: float) -> bool:
    """Whether a collective spans enough computation to count as overlapped.

    A fair span would be the same share of the computation as the collective has of
    the bytes. A tenth of that is required. It rules out, for example, a gradient's
    all-reduce that spans one last small dot, a hundredth of the step.
    """
    if not all_work.flops + all_work.kernels:  # only elementwise work, not counted
        return between.loops > 0
    shares = [
        part / whole
        for part, whole in (
            (between.flops, all_work.flops),
            (between.kernels, all_work.kernels),
        )
        if whole
    ]
    return max(shares) >= share_of_bytes / 10


def _find(
    schedule: Schedule, name: str, times: int, worker_devices: int
) -> Iterator[_Found]:
    computation = schedule.computations.get(name, ())
    for place, start in enumerate(computation):
        if start.opcode in ("while", "call", "conditional"):
            trips = trip_count(schedule, start) if start.opcode == "while" else 1
            for called in start.called:
                yield from _find(schedule, called, times * trips, worker_devices)
        elif held := started(schedule, start):
            span = until_done(schedule, computation[place:], held)
            first = next(i for i, x in enumerate(computation) if x is span[0])
            result = span[-1] if len(span) > 1 else held
            size = max(sum(map(shape_bytes, held.inputs)), result.bytes)
            yield _Found(
                kind=start.opcode if held is start else f"{start.opcode} {held.opcode}",
                bytes=times * size,
                where=f"{name}/{start.name}",
                between=add_work([work_between(schedule, span, held)] * times),
                blocked=is_blocked(schedule, computation[: first + 1]),
                inside=is_inside(held, worker_devices),
                needed=is_needed(schedule, computation[place:], span),
            )
