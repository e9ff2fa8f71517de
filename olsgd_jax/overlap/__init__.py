"""The proof: which communication of a compiled program travels during computation."""

from olsgd_jax.overlap.collectives import Collective as Collective
from olsgd_jax.overlap.hlo.schedule import Schedule as Schedule
from olsgd_jax.overlap.hlo.schedule import read_schedule as read_schedule
from olsgd_jax.overlap.report import OverlapReport as OverlapReport
from olsgd_jax.overlap.report import assert_overlapped as assert_overlapped
from olsgd_jax.overlap.report import overlap_report as overlap_report
