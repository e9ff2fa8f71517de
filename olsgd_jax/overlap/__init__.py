"""The proof: reports which communication of a compiled program overlaps computation."""

from olsgd_jax.overlap.collectives import Collective
from olsgd_jax.overlap.hlo.schedule import Schedule, read_schedule
from olsgd_jax.overlap.report import OverlapReport, assert_overlapped, overlap_report

__all__ = [
    "Collective",
    "OverlapReport",
    "Schedule",
    "assert_overlapped",
    "overlap_report",
    "read_schedule",
]
